"""Verdicts for people: plain text, aligned, 100 columns wide at most but for names and paths, which are not cut."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from hpcnn.records.phases import columns_for
from hpcnn.studies.agreement import agreement_lines, agreement_pairs, pairs_to_dicts
from hpcnn.studies.reading import Epoch, Run, epochs_of
from hpcnn.studies.verdict import Verdict

WIDTH = 100
MOST_EPOCHS = 24
"""Epochs that a table shows; of more, the first and the last half of so many."""


def verdicts_to_dict(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The JSON document of a comparison; with several runs, the agreement of each pair too."""
    document: dict[str, Any] = {"comparisons": [verdict.to_dict() for verdict in verdicts]}
    if len(verdicts) > 1:
        document["pairs"] = pairs_to_dicts(agreement_pairs(_runs(verdicts)))
    return document


def _runs(verdicts: Sequence[Verdict]) -> list[Run]:
    return [verdicts[0].baseline, *(verdict.run for verdict in verdicts)]


def json_text(verdicts: Sequence[Verdict]) -> str:
    return json.dumps(verdicts_to_dict(verdicts), indent=2, allow_nan=False)


def render(verdicts: Sequence[Verdict]) -> str:
    """A block a verdict: the verdict, why, the epochs side by side, where the time went, and the paths. Of several
    runs, the agreement of each pair at the end."""
    blocks = [_block(verdict) for verdict in verdicts]
    if len(verdicts) > 1:
        blocks.append(agreement_lines(_runs(verdicts)))
    return "\n\n".join(map("\n".join, blocks))


def _block(verdict: Verdict) -> list[str]:
    baseline, run = verdict.baseline, verdict.run
    lines = [f"VERDICT {verdict.verdict}: {run.name} against {baseline.name}"]
    if len(lines[0]) > WIDTH:
        lines = [f"VERDICT {verdict.verdict}: {run.name}", f"    against {baseline.name}"]
    for cause in verdict.causes:
        lines += _wrapped(cause, "  cause: ")
    for reason in verdict.reasons:
        lines += _wrapped(reason, "  - ")
    lines += ["", *_epoch_table(baseline, run)]
    for one in (baseline, run) if run.path != baseline.path else (run,):
        lines += ["", *_time_table(one)]
    return [*lines, "", f"baseline: {baseline.path}", f"run:      {run.path}"]


def _wrapped(text: str, start: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _epoch_table(baseline: Run, run: Run) -> list[str]:
    """Loss and accuracy per epoch, of the baseline and of the run in neighbouring columns."""
    ours = {one.epoch: one for one in epochs_of(baseline)}
    theirs = {one.epoch: one for one in epochs_of(run)}
    epochs = sorted(ours.keys() | theirs.keys())
    if not epochs:
        return ["no epoch was trained"]
    figures = ["loss", "accuracy"]
    if any(not math.isnan(one.validation_loss) for one in (*ours.values(), *theirs.values())):
        figures += ["validation_loss", "validation_accuracy"]
    titles = [figure.replace("_", " ").replace("accuracy", "acc.") for figure in figures]
    lines = [
        "epoch" + "".join(f"{title:>22}" for title in titles),
        "     " + "".join(f"{'baseline':>12}{'run':>10}" for _ in titles),
    ]
    half = MOST_EPOCHS // 2
    for place, epoch in enumerate(epochs):
        if len(epochs) > MOST_EPOCHS and half <= place < len(epochs) - half:
            lines += ["  ..."] if place == half else []
            continue
        cells = (f"{_cell(ours.get(epoch), figure):>12}{_cell(theirs.get(epoch), figure):>10}" for figure in figures)
        lines.append(f"{epoch:>5}" + "".join(cells))
    return lines


def _cell(epoch: Epoch | None, figure: str) -> str:
    value = math.nan if epoch is None else float(getattr(epoch, figure))
    if math.isnan(value):
        return "-"
    if figure.endswith("accuracy"):
        return f"{value:.2%}"
    return f"{value:.4f}" if value < 10_000 else f"{value:.3g}"


def _time_table(run: Run) -> list[str]:
    """Seconds per phase, a row a rank."""
    widths = {phase: max(len(phase), 7) for phase in columns_for({phase for _, phase in run.seconds})}
    lines = [f"seconds, {run.name}", "rank " + " ".join(f"{phase:>{width}}" for phase, width in widths.items())]
    for rank in sorted(run.hosts):
        cells = (f"{_seconds(run.seconds.get((rank, phase), 0.0)):>{width}}" for phase, width in widths.items())
        lines.append(f"{rank:>4} " + " ".join(cells))
    return [*lines, *_wrapped(", ".join(_hosts(run)), "on ")]


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10_000 else f"{value:.0f}"


def _hosts(run: Run) -> Iterable[str]:
    """Each host with its ranks: `node1 (0, 1)`."""
    for host in dict.fromkeys(run.hosts[rank] for rank in sorted(run.hosts)):
        ranks = ", ".join(str(rank) for rank in sorted(run.hosts) if run.hosts[rank] == host)
        yield f"{host} ({ranks})"
