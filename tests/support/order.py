"""In which order groups of tests are handed out to processes: the longest first, so that none is alone in the end.

How long they are is what they took the last time. Any order shows the same; a machine that does not know it yet goes by
how many tests a group has, and how many slow ones.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.kept import CACHE

SLOW_SECONDS, SECONDS = 30.0, 0.5
"""Of a test that is marked slow, and of another one, where nothing is known."""


def seconds_file(environment: str) -> Path:
    """Of all tests in one environment."""
    return CACHE / f"test-seconds-{Path(environment).name}.json"


def read_seconds(path: Path) -> dict[str, float]:
    """By group; nothing where there is no such file."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        return {str(group): float(seconds) for group, seconds in json.loads(path.read_text(encoding="utf-8")).items()}
    return {}


def write_seconds(path: Path, found: Mapping[str, float]) -> None:
    """Beside what is known of other groups; where nothing can be kept, nothing is."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        scratch.write_text(json.dumps({**read_seconds(path), **found}, indent=0, sort_keys=True), encoding="utf-8")
        scratch.replace(path)


def longest_first(groups: Mapping[str, tuple[int, int]], known: Mapping[str, float]) -> list[str]:
    """`groups`: how many tests each has, and how many slow ones among them; `known`: seconds of some of them."""

    def length(group: str) -> float:
        tests, slow = groups[group]
        return known.get(group, slow * SLOW_SECONDS + tests * SECONDS)

    return sorted(groups, key=length, reverse=True)
