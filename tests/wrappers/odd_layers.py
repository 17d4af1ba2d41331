"""Functions that are no layers, in any framework: what the tests of native layers must see refused."""

from __future__ import annotations

from itertools import count
from typing import Any

_calls = count(1)


def mixes_rows(x: Any) -> Any:
    return x * x[0]


def counts_its_calls(x: Any) -> Any:
    return x * float(next(_calls))


def fails(x: Any) -> Any:
    raise ValueError("first line\nsecond line")


def leaves(x: Any) -> Any:
    raise SystemExit(3)


def gives_two(x: Any) -> Any:
    return x, x


def drops_rows(x: Any) -> Any:
    return x[:1]
