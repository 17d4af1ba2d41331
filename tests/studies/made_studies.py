"""Studies made for the tests of reports: cells and runs as `hpcnn study run` leaves them, whose times follow a law."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcnn.config import RunConfig
from hpcnn.records.arrivals import Lateness
from hpcnn.records.phases import Tally
from hpcnn.records.run_folder import LossRow, RankTimes, RunFolder
from hpcnn.studies.cells import Cell, write_cells
from tests.studies.made_runs import manifest

WARMUP = 2
STEPS = 40
"""Steps an epoch."""
EPOCHS = 3
BATCH = 50
SERIAL = 0.1
PREDICTIONS = [3, 1, 4, 1, 5, 9, 2, 6]
WORK = 4.0
"""Seconds of an epoch's timed steps on one rank."""

Share = Mapping[str, float]
COMPUTING: Share = {"load": 0.02, "forward": 0.3, "backward": 0.58, "update": 0.06, "other": 0.04}


def amdahl(serial: float) -> Callable[[int], float]:
    """Seconds of an epoch on so many ranks, for work of one size."""
    return lambda ranks: WORK * (serial + (1 - serial) / ranks)


def gustafson(serial: float) -> Callable[[int], float]:
    """The same where every rank has as much work as one alone."""
    return lambda ranks: WORK * ranks / (serial + (1 - serial) * ranks)


def cell(key: str, ranks: int, repeat: int = 0, **changes: Any) -> Cell:
    """A cell of torch and data parallelism; `changes` are fields of a Cell, or else settings of its run."""
    fields = {name: changes.pop(name) for name in ("scaling", "state", "reason", "run") if name in changes}
    settings = {
        "network": "small_network", "backend": "torch", "keras_backend": None, "strategy": "data", "grid": None,
        "schedule": None, "micro_batches": 1, "reducer": "mpi", "global_batch": BATCH, "epochs": EPOCHS, "threads": 1,
        "rows": None, "settle_steps": WARMUP, "backend_option": {}, "reducer_option": {},
    }  # fmt: skip
    return Cell(
        key=f"{key}_np{ranks}_r{repeat}", repeat=repeat, ranks=ranks, settings={**settings, **changes},
        **{"scaling": "strong", "state": "done", **fields},
    )  # fmt: skip


def times(
    ranks: int, seconds: float, late: int | None = None, computing: Share = COMPUTING, waiting: float = 0.04
) -> list[RankTimes]:
    """Ranks whose every epoch takes `seconds`: of several, `waiting` of it and as much for communication, the rest as
    `computing` has it. The `late` one waits for nobody and computes meanwhile."""
    found = []
    for rank in range(ranks):
        rows = [(0, "start", tally(2.0)), (0, "forward", tally(3.0, WARMUP))]
        apart = 0.0 if ranks == 1 else waiting
        for epoch in range(1, EPOCHS + 1):
            parts = {name: share * (1 - 2 * apart) for name, share in computing.items()}
            parts |= {"communicate": apart, "wait": apart} if ranks > 1 else {}
            if rank == late:
                parts = {**parts, "backward": parts["backward"] + parts["wait"], "wait": 0.0}
            rows += [(epoch, name, tally(seconds * share, STEPS)) for name, share in parts.items()]
            rows.append((epoch, "evaluate", tally(0.1)))
        behind = apart * seconds / STEPS
        lateness = Lateness("all", STEPS * EPOCHS, STEPS * EPOCHS, behind) if rank == late else Lateness(
            "all", STEPS * EPOCHS, STEPS * EPOCHS // 2, 0.0
        )  # fmt: skip
        found.append(RankTimes(rank, f"node{rank // 2}", 20.0, rows, lateness if ranks > 1 else Lateness()))
    return found


def losses(batch: int = BATCH, noise: float = 0.0) -> list[LossRow]:
    """A loss that falls, with a scatter, and by `noise` another one in its last digits."""
    found = []
    for step in range(EPOCHS * STEPS):
        loss = 2.3 * math.exp(-step / 45) * (1 + 0.1 * math.sin(7.0 * step)) * (1 + noise * math.sin(step + 1.0))
        last = step % STEPS == STEPS - 1
        found.append(
            LossRow(
                step // STEPS + 1, step, (step + 1) * batch, 1e-3, loss, max(0.0, 1 - loss / 2.6), 0.9 * loss**0.7,
                1.1 * loss if last else None, 0.9 if last else None,
            )
        )  # fmt: skip
    return found


def tally(seconds: float, count: int = 1) -> Tally:
    return Tally(count, seconds, seconds / count, seconds / count)


def write_cell(
    folder: Path,
    one: Cell,
    spent: Sequence[RankTimes],
    *,
    rows: Sequence[LossRow] | None = None,
    predictions: Sequence[int] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Cell:
    """The run of a cell, completed; returns the cell with its run."""
    batch = one.settings["global_batch"]
    rows = losses(batch) if rows is None else rows
    out = folder / "runs" / one.key
    run = RunFolder.create(out, "x", "run")
    run.write_losses(rows)
    run.write_timing(spent)
    if predictions is not None:
        run.write_predictions(predictions)
    known = RunConfig.__dataclass_fields__
    settings = {name: value for name, value in one.settings.items() if name in known and value is not None}
    made = manifest(rows, one.ranks, settings, {
        "run": run.run, "training_rows": STEPS * batch, "steps_per_epoch": STEPS,
        "lateness": [each.lateness._asdict() for each in spent],
        "versions": {"hpcnn": "0.1.0", "python": "3.11.7", "torch": "2.13.0"},
        "machine": [{"host": "node0", "processor": "a processor", "cores": 8, "memory_bytes": 2**34}],
        "start": "2026-01-02T03:04:05+00:00", "end": "2026-01-02T03:05:05+00:00", "commit": "0123456789ab",
        "wall_seconds": [each.wall_seconds for each in spent], **(facts or {}),
    })  # fmt: skip
    run.write_manifest(**made)
    return replace(one, run=str(run.path.relative_to(folder)))


def write_study(folder: Path, cells: Sequence[Cell], warmup: int = WARMUP) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_cells(folder, cells, study="made", warmup_steps=warmup)


def make_study(folder: Path) -> Path:
    """Strong scaling of torch by Amdahl's law to 4 ranks, a pipeline on 2, weak scaling by Gustafson's, one that loads
    too slowly, one rank that is late; and a cell without figures."""
    cells = []
    for repeat in range(2):
        for ranks in (1, 2, 4):
            late = 1 if ranks == 4 else None
            cells.append((cell("strong", ranks, repeat), times(ranks, amdahl(SERIAL)(ranks), late, waiting=0.1)))
        pipeline = cell("pipeline", 2, repeat, strategy="pipeline", grid="pp=2", schedule="1f1b", micro_batches=5)
        cells.append((pipeline, times(2, 3.0)))
        for ranks in (1, 2):
            weak = cell("weak", ranks, repeat, scaling="weak", global_batch=BATCH * ranks, rows=1000 * ranks)
            cells.append((weak, times(ranks, gustafson(SERIAL)(ranks))))
    loads = cell("loads", 1, scaling="none", backend="lasagne")
    cells.append((loads, times(1, 9.0, computing={**COMPUTING, "load": 0.4, "backward": 0.2})))
    written = [
        write_cell(
            folder, one, spent, rows=losses(one.settings["global_batch"], 1e-7 * one.ranks), predictions=PREDICTIONS
        )
        for one, spent in cells
    ]
    refused = cell("strong", 8, state="refused", reason="8 ranks are more than the 4 | cores of <this> machine")
    written.append(refused)
    write_study(folder, written)
    return folder
