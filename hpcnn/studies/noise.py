"""How far apart correct runs end, measured: from repeats of the baseline that add the same numbers in another order.

Any run that differs from the baseline in nothing but the order of its sums is such a repeat: other --micro-batches,
other numbers of ranks. Once two correct runs have parted, what they end at is a draw; a run may end as far from the
baseline as the next of n draws from one of them, at odds of 1 in 1,000 by Student's t with n - 1 degrees of freedom:
t * s * sqrt(2), s the deviation of the n. Three repeats (n = 4) allow 18 deviations, nine 6.8: more make it narrow. It
replaces what tolerance.py derives for any network; the habit of the field stays the least.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hpcnn.errors import ResultsError
from hpcnn.studies.finals import Agreement, Final, agreement, final_figures
from hpcnn.studies.reading import Run

LEAST = 3
"""Repeats, below which t is so large that nothing is learnt."""

_FREEDOM = (3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 60)
_T = (12.924, 8.610, 6.869, 5.959, 5.408, 5.041, 4.781, 4.587, 4.318, 4.073, 3.850, 3.646, 3.460)
"""Student's t that is exceeded, to either side, once in 1,000; of degrees in between the next fewer's holds."""


@dataclass(frozen=True)
class Band:
    """What `repeats` repeats of a baseline allow: by a final figure's name, and of predictions that differ."""

    repeats: int
    finals: Mapping[str, float]
    disagreement: int | None

    def of_final(self, final: Final, habit: Final) -> Final:
        """`final`, allowed what was measured, or at least what `habit` allows."""
        if final.name not in self.finals:
            return final
        return replace(final, allowed=max(habit.allowed, self.finals[final.name]), repeats=self.repeats)

    def of_agreement(self, found: Agreement, habit: Agreement) -> Agreement:
        if self.disagreement is None or not found.rows:
            return found
        return found.within(max(habit.allowed, self.disagreement), self.repeats)


def measure(baseline: Run, repeats: Sequence[Run]) -> Band:
    """The band of `repeats`, which are known to be the baseline's experiment. ResultsError where they are too few, or
    two of them the same run."""
    if len(repeats) < LEAST:
        raise ResultsError(f"--noise takes at least {LEAST} repeats of the baseline, not {len(repeats)}: train more")
    runs = [baseline, *repeats]
    for left, right in combinations(runs, 2):
        if left.steps and left.losses["train_loss"].tobytes() == right.losses["train_loss"].tobytes():
            raise ResultsError(
                f"{right.path}: has the very losses of {left.path}, and measures no noise: repeat with other "
                "--micro-batches, or on another number of ranks"
            )
    t = student_t(len(repeats))
    values: dict[str, list[float]] = {}
    for repeat in repeats:
        for final in final_figures(baseline, repeat, together=False):
            values.setdefault(final.name, [final.baseline]).append(final.run)
    return Band(
        repeats=len(repeats),
        finals={
            name: t * math.sqrt(2) * statistics.stdev(some) for name, some in values.items() if len(some) == len(runs)
        },
        disagreement=_disagreement(runs, t),
    )


def _disagreement(runs: Sequence[Run], t: float) -> int | None:
    """Of the numbers of predictions that differ between two of `runs`, their mean and t deviations; a count scatters by
    its root at least."""
    found = [agreement(left, right, together=False) for left, right in combinations(runs, 2)]
    if not all(one.rows for one in found):
        return None
    counts = [one.differing for one in found]
    mean = statistics.mean(counts)
    return min(math.ceil(mean + t * max(statistics.stdev(counts), math.sqrt(mean))), found[0].rows)


def student_t(freedom: int) -> float:
    return _T[max(bisect_right(_FREEDOM, freedom) - 1, 0)]
