"""Fields of layer specs: they accept the short form that people write (3 for (3, 3)) and hold the full, checked one.

A field is a descriptor, so a frozen dataclass converts on construction, type checkers see the wide type when it is
given and the narrow one when it is read, and each rule about values is written once, as a converter.
https://docs.python.org/3/library/dataclasses.html#descriptor-typed-fields
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, Generic, Literal, TypeVar, cast

from hpcnn.errors import NetworkError

Pair = tuple[int, int]
Padding = Literal["same", "valid"] | tuple[Pair, Pair]
GivenPair = int | Sequence[int]
GivenPadding = str | int | Sequence[int] | Sequence[Sequence[int]]

Given = TypeVar("Given")
Held = TypeVar("Held")
_REQUIRED = object()


class Converted(Generic[Given, Held]):
    """A dataclass field that passes what it is given through `convert(layer, field name, value)`."""

    def __init__(self, convert: Callable[[Any, str, Any], Held], default: object = _REQUIRED) -> None:
        self.convert = convert
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: object | None, owner: type | None = None) -> Held:
        if layer is not None:
            return cast(Held, layer.__dict__[self.name])
        if self.default is _REQUIRED:
            raise AttributeError(self.name)
        return cast(Held, self.default)

    def __set__(self, layer: object, value: Given) -> None:
        layer.__dict__[self.name] = self.convert(layer, self.name, value)


def refusal(layer: Any, field: str, value: object, rule: str) -> NetworkError:
    """The error for a value that breaks a rule; it names the layer."""
    return NetworkError(f"{layer.label}: {field} is {value!r}; it must be {rule}")


def is_whole(value: Any, minimum: int) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__") and index(value) >= minimum


def positive(layer: Any, field: str, value: Any) -> int:
    if not is_whole(value, 1):
        raise refusal(layer, field, value, "a whole number, at least 1")
    return index(value)


def pair(layer: Any, field: str, value: Any) -> Pair:
    """(height, width), both at least 1."""
    both = _pair(value, 1)
    if both is None:
        raise refusal(layer, field, value, "a whole number or (height, width), at least 1")
    return both


def padding(layer: Any, field: str, value: Any) -> Padding:
    """ "same", "valid" or ((top, bottom), (left, right)), all at least 0."""
    if value in ("same", "valid"):
        return cast(Padding, value)
    sides = value
    both = _pair(value, 0)
    if both is not None:
        sides = [(amount, amount) for amount in both]
    if isinstance(sides, Sequence) and not isinstance(sides, str) and len(sides) == 2:
        vertical, horizontal = (None if is_whole(side, 0) else _pair(side, 0) for side in sides)
        if vertical is not None and horizontal is not None:
            return vertical, horizontal
    raise refusal(layer, field, value, '"same", "valid", a number, (height, width) or ((top, bottom), (left, right))')


def finite(layer: Any, field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise refusal(layer, field, value, "a finite number")
    return float(value)


def fraction(layer: Any, field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise refusal(layer, field, value, "at least 0 and below 1")
    return float(value)


def _pair(value: Any, minimum: int) -> Pair | None:
    if is_whole(value, minimum):
        return index(value), index(value)
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        first, second = value
        if is_whole(first, minimum) and is_whole(second, minimum):
            return index(first), index(second)
    return None
