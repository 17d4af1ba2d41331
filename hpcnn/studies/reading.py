"""A completed run, read from its folder. What is damaged, still runs or ended badly is refused with one line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn.errors import ResultsError
from hpcnn.records.evidence import SeenReplica, SeenRow
from hpcnn.records.run_folder import LOSS_COLUMNS, PREDICTION_COLUMNS, TIMING_COLUMNS
from hpcnn.records.state import read_json, read_state
from hpcnn.studies.tables import Column, numbers, read_rows, read_table, whole_numbers

_COUNTS = ("epoch", "step", "samples")
_OPTIONAL = ("validation_loss", "validation_accuracy")


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One completed run.

    `losses`: the columns of loss.csv but `run`, float64, a value a step, nan where a cell is empty. `seconds`: by rank
    and phase, summed over epochs. `predictions`: label by ImageId, None without predictions.csv. `rows`, `replicas`: of
    rows.csv and replicas.csv, empty where a run has left none.
    """

    path: Path
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]
    ranks: int
    losses: Mapping[str, Column]
    seconds: Mapping[tuple[int, str], float]
    hosts: Mapping[int, str]
    predictions: Mapping[str, str] | None
    rows: Sequence[SeenRow] = ()
    replicas: Sequence[SeenReplica] = ()

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def steps(self) -> int:
        return len(self.losses["step"])

    @property
    def first_step(self) -> int | None:
        """The global step that loss.csv starts at: 0, but for a run that was resumed."""
        return int(self.losses["step"][0]) if self.steps else None

    @property
    def last_step(self) -> int | None:
        return int(self.losses["step"][-1]) if self.steps else None

    @property
    def summands(self) -> int:
        """Ranks whose gradients are added: all, but in a pipeline, of whose ranks each replica has several."""
        grid = dict(item.split("=") for item in str(self.manifest.get("grid", "")).split(",") if item.count("=") == 1)
        return int(grid["dp"]) if grid.get("dp", "").isdecimal() else self.ranks

    @property
    def micro_batches(self) -> int:
        return int(self.config.get("micro_batches") or 1)

    @property
    def tested(self) -> Mapping[str, Any]:
        """Rows, loss and accuracy on the test file as run.json has them; empty without a test file."""
        test = self.manifest.get("test")
        return test if isinstance(test, dict) else {}


@dataclass(frozen=True)
class Epoch:
    """Means over the rows of one epoch; the validation figures are nan where there are none."""

    epoch: int
    rows: int
    loss: float
    accuracy: float
    validation_loss: float
    validation_accuracy: float


def epochs_of(run: Run) -> list[Epoch]:
    """An entry an epoch, in order; each step counts by the rows of its batch."""
    if not run.steps:
        return []
    losses = run.losses
    first = losses["samples"][0]
    before = max(first - float(run.config.get("global_batch") or first), 0.0)
    rows = np.diff(losses["samples"], prepend=before)
    found = []
    for epoch in np.unique(losses["epoch"]):
        mine = losses["epoch"] == epoch
        weights = rows[mine] / rows[mine].sum()
        found.append(
            Epoch(
                int(epoch),
                int(rows[mine].sum()),
                float(weights @ losses["train_loss"][mine]),
                float(weights @ losses["train_accuracy"][mine]),
                float(losses["validation_loss"][mine][-1]),
                float(losses["validation_accuracy"][mine][-1]),
            )
        )
    return found


def read_run(folder: Path) -> Run:
    """The completed run in `folder`. Raises ResultsError where it has not completed or a file is damaged."""
    state = read_state(folder)
    if state.state != "completed":
        words = f": {state.words}" if state.words else ""
        raise ResultsError(f"{folder}: the run is not completed but {state.state}{words}; only completed runs compare")
    manifest = read_json(folder / "run.json")
    config, ranks = manifest.get("config"), manifest.get("ranks")
    if not isinstance(config, dict):
        raise ResultsError(f"{folder / 'run.json'}: has no settings under 'config'")
    if type(ranks) is not int or ranks < 1:
        raise ResultsError(f"{folder / 'run.json'}: 'ranks' is {ranks!r}, not the number of ranks")
    seconds, hosts = _read_timing(folder / "timing.csv")
    return Run(
        path=folder,
        manifest=manifest,
        config=config,
        ranks=ranks,
        losses=_read_losses(folder / "loss.csv", manifest),
        seconds=seconds,
        hosts=hosts,
        predictions=_read_predictions(folder / "predictions.csv"),
        rows=read_rows(folder / "rows.csv", SeenRow),
        replicas=read_rows(folder / "replicas.csv", SeenReplica),
    )


def _read_losses(path: Path, manifest: Mapping[str, Any]) -> Mapping[str, Column]:
    table = read_table(path, LOSS_COLUMNS)
    losses = {
        name: whole_numbers(path, table, name)
        if name in _COUNTS
        else numbers(path, table, name, optional=name in _OPTIONAL)
        for name in LOSS_COLUMNS
        if name != "run"
    }
    for name, least in (("step", 1), ("samples", 1), ("epoch", 0)):
        forward = np.diff(losses[name])
        bad = (forward != 1) if name == "step" else (forward < least)
        if bad.any():
            line = int(bad.argmax()) + 3
            raise ResultsError(f"{path}: line {line}, column {name}: does not follow the line before; rows are missing")
    done, last = manifest.get("steps"), int(losses["step"][-1]) if len(losses["step"]) else -1
    nothing_left = last < 0 and manifest["config"].get("resume")
    if type(done) is int and last != done - 1 and not nothing_left:
        raise ResultsError(f"{path}: holds steps up to {last}, run.json says {done - 1}; copy the folder or run again")
    return losses


def _read_timing(path: Path) -> tuple[Mapping[tuple[int, str], float], Mapping[int, str]]:
    table = read_table(path, TIMING_COLUMNS)
    seconds: dict[tuple[int, str], float] = defaultdict(float)
    hosts: dict[int, str] = {}
    ranks = whole_numbers(path, table, "rank")
    for rank, host, phase, spent in zip(
        ranks, table["host"], table["phase"], numbers(path, table, "seconds"), strict=True
    ):
        seconds[int(rank), phase] += float(spent)
        hosts[int(rank)] = host
    return dict(seconds), hosts


def _read_predictions(path: Path) -> Mapping[str, str] | None:
    if not path.exists():
        return None
    table = read_table(path, PREDICTION_COLUMNS)
    return dict(zip(table["ImageId"], table["Label"], strict=True))
