"""The short table at a run's end: where each rank's time went, which one was late, and how well the network does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hpcnn.records.phases import columns_for
from hpcnn.records.run_folder import LossRow, RankTimes
from hpcnn.training.evaluate import Evaluation
from hpcnn.training.late import late_lines


def summary_lines(
    rows: Sequence[LossRow], times: Sequence[RankTimes], tested: Evaluation | None, samples_before: int = 0
) -> list[str]:
    """Lines for a terminal: seconds per phase and rank, who was late, rows a second, the test file's figures.

    `samples_before`: rows that were trained before the first step whose time counts: by the run that this one resumed,
    and in --settle-steps.
    """
    training = training_seconds(times)
    lines = ["", *_phase_table(times), *late_lines(times, training)]
    if rows and training:
        samples = rows[-1].samples - samples_before
        lines.append(f"{samples / training:,.0f} training rows a second")
    if tested is not None:
        labelled = tested.loss is not None and tested.accuracy is not None
        figures = f"loss {tested.loss:.4f}, accuracy {tested.accuracy:.2%}" if labelled else "no labels"
        lines.append(f"test: {tested.rows:,} rows, {figures}")
    return lines


def _phase_table(times: Sequence[RankTimes]) -> list[str]:
    """Seconds, a rank a line and a phase a column, each as wide as its name; below 100 columns in all."""
    spent = {phase for one in times for _, phase, _ in one.rows}
    widths = {phase: 1 + max(7, len(phase)) for phase in columns_for(spent)}
    lines = ["seconds  " + "".join(f"{phase:>{width}}" for phase, width in widths.items())]
    for one in times:
        seconds: dict[str, float] = defaultdict(float)
        for _, phase, tally in one.rows:
            seconds[phase] += tally.seconds
        cells = (f"{seconds[phase]:{width}.2f}" for phase, width in widths.items())
        lines.append(f"rank {one.rank:<4}" + "".join(cells))
    return lines


def epoch_means(rows: Sequence[LossRow], samples_before: int) -> tuple[float, float]:
    """Training loss and accuracy over the rows of the last epoch of `rows`; a smaller last batch counts for less."""
    before = [samples_before, *(row.samples for row in rows[:-1])]
    own = [(row, row.samples - seen) for row, seen in zip(rows, before, strict=True) if row.epoch == rows[-1].epoch]
    total = sum(count for _, count in own)
    loss = sum(row.train_loss * count for row, count in own) / total
    return loss, sum(row.train_accuracy * count for row, count in own) / total


def training_seconds(times: Sequence[RankTimes]) -> float:
    """Seconds of the slowest rank in its epochs, evaluation and checkpoints apart."""
    apart = ("evaluate", "checkpoint")
    return max(
        (sum(tally.seconds for epoch, phase, tally in one.rows if epoch > 0 and phase not in apart) for one in times),
        default=0.0,
    )
