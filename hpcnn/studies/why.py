"""Which causes explain that two runs differ: the plainest evidence first, so that one fault has one name."""

from __future__ import annotations

from collections.abc import Sequence

from hpcnn.studies.asked import ROUNDED, asked_for, sum_deviation
from hpcnn.studies.causes import fault_causes
from hpcnn.studies.reading import Run
from hpcnn.studies.seen import Difference
from hpcnn.studies.sums import sum_causes
from hpcnn.studies.tolerance import FIRST_STEP, gradient_deviation, loss_deviation


def seen_causes(baseline: Run, run: Run, seen: Sequence[Difference]) -> tuple[str, ...]:
    """Faults that ranks recorded. Ranks that drift apart, or a sum without one of them, explain all else."""
    sums = [cause for one in (run, baseline) for cause in sum_causes(one)]
    return tuple(sums or [one.words for one in seen if one.is_cause])


def step_causes(baseline: Run, run: Run, *, one_start: bool, differs_at_first: bool) -> tuple[str, ...]:
    """Faults that the first step's figures tell; or what was asked for, where that explains them.

    `one_start`: the first step in common is the first of both; else the runs may have been apart already."""
    asked = asked_for(baseline, run)
    loss, gradient = _first_step(baseline, run) if one_start and baseline.steps else (0.0, 0.0)
    if None in [sum_deviation(one) for one in (baseline, run)]:
        return asked if loss <= FIRST_STEP else ()
    faults = fault_causes(baseline, run) if differs_at_first else ()
    return faults or (asked if loss <= FIRST_STEP and gradient <= ROUNDED else ())


def _first_step(baseline: Run, run: Run) -> tuple[float, float]:
    """Deviation of loss and gradient norm."""
    left, right = baseline.losses, run.losses
    return (
        float(loss_deviation(left["train_loss"][:1], right["train_loss"][:1])[0]),
        float(gradient_deviation(left["gradient_norm"][:1], right["gradient_norm"][:1])[0]),
    )
