"""Runs made for the tests of studies: written through RunFolder as a run writes them, or held in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn.config import RunConfig
from hpcnn.records.phases import Tally
from hpcnn.records.run_folder import LossRow, RankTimes, RunFolder
from hpcnn.studies.reading import Run

STEPS = 12
"""Steps an epoch of the made runs: 11 of BATCH rows and one of what is left."""
BATCH = 50
ROWS = 580
NETWORK: Mapping[str, Any] = {
    "name": "net",
    "input_shape": [1, 28, 28],
    "layers": [{"type": "flatten"}, {"type": "dense", "units": 10}, {"type": "softmax"}],
}


def curve(epochs: int = 3, *, validation: bool = True, start: float = 2.3) -> list[LossRow]:
    """Steps of a training that goes as one does: the loss falls, with a scatter from batch to batch."""
    random = np.random.default_rng(5)
    rows = []
    for step in range(epochs * STEPS):
        epoch, place = divmod(step, STEPS)
        loss = start * math.exp(-step / 20) * float(1 + 0.1 * random.standard_normal())
        accuracy = round((1 - min(loss, 2.3) / 2.6) * BATCH) / BATCH
        rows.append(
            LossRow(
                epoch + 1, step, epoch * ROWS + min(BATCH * (place + 1), ROWS), 1e-3, loss, accuracy, 0.9 * loss**0.7
            )
        )
        if validation and place == STEPS - 1:
            rows[-1] = replace(rows[-1], validation_loss=1.1 * loss, validation_accuracy=accuracy)
    return rows


def changed(rows: Sequence[LossRow], change: Any) -> list[LossRow]:
    """`change(step, name, value)` of every measured figure that is there."""
    names = ("train_loss", "train_accuracy", "gradient_norm", "validation_loss", "validation_accuracy")
    return [
        replace(
            row, **{name: change(row.step, name, value) for name in names if (value := getattr(row, name)) is not None}
        )
        for row in rows
    ]


def with_noise(rows: Sequence[LossRow], size: float, seed: int = 1) -> list[LossRow]:
    """Losses and gradient norms changed by up to `size` of themselves; accuracies are counts and stay."""
    random = np.random.default_rng(seed)

    def noisy(step: int, name: str, value: float) -> float:
        return value if name.endswith("accuracy") else value * (1 + size * random.uniform(-1, 1))

    return changed(rows, noisy)


def drifting(rows: Sequence[LossRow], end: float, per_step: float = 4.0, seed: int = 1) -> list[LossRow]:
    """As rounding grows: from 1e-7, `per_step` times as much each step, up to `end` of the figure."""
    random = np.random.default_rng(seed)

    def drifted(step: int, name: str, value: float) -> float:
        size = min(1e-7 * per_step**step, end)
        return value if name.endswith("accuracy") else value * (1 + size * random.uniform(-1, 1))

    return changed(rows, drifted)


def scaled(rows: Sequence[LossRow], factor: float) -> list[LossRow]:
    """Gradient norms times `factor`, all else as it was."""
    return changed(rows, lambda step, name, value: value * (factor if name == "gradient_norm" else 1))


def manifest(
    rows: Sequence[LossRow], ranks: int, settings: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """What run.json says of a completed run."""
    given = {"train": "data/train.csv", "test": "data/test.csv", "epochs": max((row.epoch for row in rows), default=0)}
    config = RunConfig(**{**given, "global_batch": BATCH, "validation_fraction": 0.2, **settings})
    return {
        "run": "x",
        "state": "completed",
        "config": config.to_dict(),
        "ranks": ranks,
        "logical_shards": min(64, config.global_batch),
        "training_rows": ROWS,
        "validation_rows": 145,
        "steps_per_epoch": STEPS,
        "network": dict(NETWORK),
        "steps": rows[-1].step + 1 if rows else 0,
        **facts,
    }


def times(ranks: int, epochs: int = 3) -> list[RankTimes]:
    """Half a second of forward an epoch on rank 0, more on each rank after it; ranks 0 and 1 on the first host."""
    found = []
    for rank in range(ranks):
        tally = Tally()
        tally.add(0.5 * (rank + 1), 10)
        measured = [(epoch, phase, tally) for epoch in range(1, epochs + 1) for phase in ("forward", "wait")]
        found.append(RankTimes(rank, f"node{rank // 2}", 4.0, measured))
    return found


def write_run(
    out: Path,
    name: str,
    rows: Sequence[LossRow],
    *,
    ranks: int = 1,
    settings: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    predictions: Sequence[int] | None = None,
) -> Path:
    """The folder of a completed run, through RunFolder."""
    folder = RunFolder.create(out, "x", name)
    folder.write_losses(rows)
    folder.write_timing(times(ranks))
    if predictions is not None:
        folder.write_predictions(predictions)
    folder.write_manifest(**manifest(rows, ranks, settings or {}, facts or {}))
    return folder.path


def make_run(
    name: str,
    rows: Sequence[LossRow],
    *,
    ranks: int = 1,
    settings: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    predictions: Sequence[int] | None = None,
) -> Run:
    """A completed run in memory, as `read_run` gives it."""
    told = manifest(rows, ranks, settings or {}, facts or {})
    names = [name for name in LossRow.__dataclass_fields__]
    losses = {
        name: np.array(
            [math.nan if getattr(row, name) is None else getattr(row, name) for row in rows], dtype=np.float64
        )
        for name in names
    }
    return Run(
        path=Path("results") / name,
        manifest=told,
        config=told["config"],
        ranks=ranks,
        losses=losses,
        seconds={(one.rank, phase): tally.seconds for one in times(ranks) for _, phase, tally in one.rows},
        hosts={one.rank: one.host for one in times(ranks)},
        predictions=None if predictions is None else {str(row): str(label) for row, label in enumerate(predictions, 1)},
    )
