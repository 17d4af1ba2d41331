"""The short table at a run's end: where each rank's time went, and how well the network does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hpcnn.records.phases import PHASES
from hpcnn.records.run_folder import LossRow, RankTimes
from hpcnn.training.evaluate import Evaluation


def summary_lines(
    rows: Sequence[LossRow], times: Sequence[RankTimes], tested: Evaluation | None, samples_before: int = 0
) -> list[str]:
    """Lines for a terminal: seconds per phase and rank, rows a second over the epochs, the test file's figures.

    `samples_before`: rows that were trained before the first of `rows`, by the run that this one resumed.
    """
    lines = ["", "seconds   " + "".join(f"{phase:>12}" for phase in PHASES if phase != "start") + f"{'start':>12}"]
    for one in times:
        seconds: dict[str, float] = defaultdict(float)
        for _, phase, tally in one.rows:
            seconds[phase] += tally.seconds
        shown = [seconds[phase] for phase in PHASES if phase != "start"] + [seconds["start"]]
        lines.append(f"rank {one.rank:<5}" + "".join(f"{value:12.2f}" for value in shown))
    training = training_seconds(times)
    if rows and training:
        samples = rows[-1].samples - samples_before
        lines.append(f"{samples / training:,.0f} training rows a second")
    if tested is not None:
        labelled = tested.loss is not None and tested.accuracy is not None
        figures = f"loss {tested.loss:.4f}, accuracy {tested.accuracy:.2%}" if labelled else "no labels"
        lines.append(f"test: {tested.rows:,} rows, {figures}")
    return lines


def training_seconds(times: Sequence[RankTimes]) -> float:
    """Seconds of the slowest rank in its epochs, evaluation and checkpoints apart."""
    apart = ("evaluate", "checkpoint")
    return max(
        (sum(tally.seconds for epoch, phase, tally in one.rows if epoch > 0 and phase not in apart) for one in times),
        default=0.0,
    )
