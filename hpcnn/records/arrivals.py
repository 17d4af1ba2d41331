"""When a rank's part of a step's reductions was on its way, beside those of the ranks that do the same work.

All have begun a step together, when they had the sum of the one before, so that who comes later took longer over this
one. Compared is with the median of the others: it stays where it is if one more of them is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Lateness(NamedTuple):
    """Of `steps`, in `later` a rank came behind the median of the other ranks of its `group`; in the step in the middle
    of all by `seconds` (less than 0: before it)."""

    group: str = "all"
    steps: int = 0
    later: int = 0
    seconds: float = 0.0


class Arrivals:
    """Of one rank, step by step. `group` names the ranks that reduce the same segments, as collectives do."""

    def __init__(self, group: str = "all") -> None:
        self.group = group
        self._behind: list[float] = []

    def add(self, mine: Any, others: Sequence[Any], steps: Sequence[int]) -> None:
        """`mine`: when this rank posted each reduction, on the clock of all; `others`: the same of each other rank of
        the group; `steps`: each reduction's step, ascending, -1 for what is part of none."""
        import numpy as np

        numbers = np.asarray(steps, np.int64)
        inside = numbers >= 0
        if not (others and inside.any()):
            return
        starts = np.flatnonzero(np.diff(numbers[inside], prepend=-1))
        # of a step's reductions the one that was posted last
        own, *theirs = (np.maximum.reduceat(np.asarray(times)[inside], starts) for times in (mine, *others))
        self._behind += (own - np.median(theirs, axis=0)).tolist()

    def lateness(self) -> Lateness:
        """Up to now."""
        behind = sorted(self._behind)
        middle = behind[len(behind) // 2] if behind else 0.0
        return Lateness(self.group, len(behind), sum(one > 0 for one in behind), middle)
