"""Run under mpirun by test_training.py: several trainings in one start of the ranks, since a start costs seconds.

`five_steps` is also what the other files of this folder train on ranks that stay. Usage: training_driver.py CSV OUT.
Rank 0 writes OUT/results.npz:
    gradient_M     the reduced gradient of step 0, computed in M micro-batches
    replicas_M     whether gradient and weights after five steps were the same bits on all ranks
    weights_M      weights after five steps
    rows           sorted file rows of epoch 1, gathered over ranks;  other: those of epoch 2 in order
and `two_runs` the runs OUT/first and OUT/second.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcnn.config import RunConfig
from hpcnn.parallel.reducers import STATISTICS
from hpcnn.records.phases import PhaseClock
from hpcnn.training.batches import Batches
from hpcnn.training.prepare import Prepared, prepare
from hpcnn.training.process import set_threads
from hpcnn.training.run import train
from tests.mpi.digits import BATCH

MICRO_BATCHES = (1, 2, 3, 40)


def config(csv: str, **changes: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "train": csv, "global_batch": BATCH, "optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9,
        "nesterov": True, "validation_fraction": 0.1, "progress": False, "threads": 1, "epochs": 2,
    }  # fmt: skip
    return RunConfig(**{**settings, **changes})


@dataclass(frozen=True)
class FiveSteps:
    """The reduced gradient of step 0, weights after five steps (both of the whole network), each step's loss, this
    rank's rows of each step, whether weights and gradient were the same bits on all replicas in the end, what this rank
    brought to the first sum (None where nothing is added), and what its reducer says of itself."""

    gradient: Any
    weights: Any
    losses: list[float]
    rows: list[int]
    replicas_equal: bool
    brought: Any = None
    reducer: Any = None


def five_steps(comm: Any, csv: str, **settings: Any) -> FiveSteps:
    """Collective. The first five steps of a training."""
    chosen = config(csv, **settings)
    set_threads(chosen.threads or 1, os.environ)
    prepared = prepare(chosen, comm, PhaseClock(), chosen.threads or 1)
    batches, gradient, losses, rows = Batches(prepared), None, [], []
    brought = _watched(prepared)
    for step in range(5):
        batch = batches.of_step(1, step)
        losses.append(prepared.executor.step(batch, prepared.rate.at(step)).loss)
        rows.append(len(batch.labels))
        if step == 0:
            gradient = whole(comm, prepared, "gradient")
    vectors = [part.vectors for part in prepared.parts.values()]
    bits = b"".join(one.weights.tobytes() + one.gradient.tobytes() for one in vectors)
    replicas = prepared.links.replicas
    same = replicas is None or len(set(replicas.allgather(bits))) == 1
    weights, adds = whole(comm, prepared, "weights"), prepared.fused or prepared.links.reducer
    found = FiveSteps(
        gradient, weights, losses, rows, all(comm.allgather(same)),
        np.concatenate([one for _, one in sorted(brought.items())]) if brought else None, adds and adds.describe(),
    )  # fmt: skip
    del vectors
    prepared.close()
    return found


def _watched(prepared: Prepared) -> dict[int, Any]:
    """The gradients of segments as they are before they are added for the first time, once they are."""
    brought: dict[int, Any] = {}
    reducer = prepared.links.reducer
    if reducer is None:
        return brought

    def watch(add: Any) -> Any:
        def watched(segment: int, message: Any) -> None:
            brought.setdefault(segment, message[:-STATISTICS].copy())
            add(segment, message)

        return watched

    reducer.reduce, reducer.post = watch(reducer.reduce), watch(reducer.post)  # type: ignore[method-assign]
    return brought


def whole(comm: Any, prepared: Prepared, name: str) -> Any:
    """Collective. `weights` or `gradient` of all segments as rank 0's replica holds them, in the canonical layout."""
    vector = np.full(prepared.architecture.size, np.nan, np.float32)
    mine = [(part.segment.offset, getattr(part.vectors, name)) for part in prepared.parts.values()]
    replica, _, _ = prepared.grid.place(comm.rank)
    for theirs, pieces in comm.allgather((replica, mine)):
        for offset, piece in pieces if theirs == 0 else []:
            vector[offset : offset + piece.size] = piece
    return vector


def one_run(comm: Any, csv: str, **settings: Any) -> str:
    """Collective. Trains and tests on the same rows; the run's folder."""
    return str(train(config(csv, test=csv, **settings), comm).folder)


def two_runs(comm: Any, csv: str, out: str, **settings: Any) -> None:
    """Collective. The runs OUT/first and OUT/second of the same configuration."""
    for name in ("first", "second"):
        train(config(csv, out=out, run_id=name, test=csv, **settings), comm)


def main(csv: str, out: Path) -> None:
    comm = MPI.COMM_WORLD
    results: dict[str, Any] = {}
    for micro_batches in MICRO_BATCHES:
        found = five_steps(comm, csv, micro_batches=micro_batches)
        results[f"gradient_{micro_batches}"] = found.gradient
        results[f"replicas_{micro_batches}"] = found.replicas_equal
        results[f"weights_{micro_batches}"] = found.weights
    prepared = prepare(config(csv), comm, PhaseClock(), 1)
    prepared.close()
    order = prepared.order
    for name, epoch in (("rows", 1), ("other", 2)):
        mine = [order.rows(epoch, step, prepared.shards) for step in range(order.steps_per_epoch)]
        results[name] = np.concatenate([part for rank in comm.allgather(mine) for part in rank])
    results["validation"] = np.concatenate(
        [rows for rank in comm.allgather(list(prepared.validation_rows.values())) for rows in rank]
    )
    if comm.rank == 0:
        np.savez(out / "results.npz", **results)
    two_runs(comm, csv, str(out))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
