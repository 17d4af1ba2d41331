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
from hpcnn.network.masks import segment_masks
from hpcnn.parallel.executor import LocalBatch
from hpcnn.records.phases import PhaseClock
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


def local_batch(prepared: Prepared, epoch: int, step: int) -> LocalBatch:
    rows = prepared.order.rows(epoch, step, prepared.shards)
    x = prepared.train.batch(rows, prepared.normalisation)
    masks = segment_masks(prepared.model.segment, prepared.config.seed, epoch, rows)
    return LocalBatch(x, prepared.train.take_labels(rows), masks, prepared.order.batch_size(step))


@dataclass(frozen=True)
class FiveSteps:
    """The reduced gradient of step 0, weights after five steps, each step's loss, this rank's rows of each step, and
    whether weights and gradient were the same bits on all ranks in the end."""

    gradient: Any
    weights: Any
    losses: list[float]
    rows: list[int]
    replicas_equal: bool


def five_steps(comm: Any, csv: str, **settings: Any) -> FiveSteps:
    """Collective. The first five steps of a training."""
    chosen = config(csv, **settings)
    set_threads(chosen.threads or 1, os.environ)
    prepared = prepare(chosen, comm, PhaseClock(), chosen.threads or 1)
    gradients, losses, rows = [], [], []
    for step in range(5):
        batch = local_batch(prepared, 1, step)
        losses.append(prepared.executor.step(batch, prepared.rate.at(step)).loss)
        rows.append(len(batch.x))
        gradients.append(prepared.vectors.gradient.copy())
    bits = prepared.vectors.weights.tobytes() + prepared.vectors.gradient.tobytes()
    return FiveSteps(gradients[0], prepared.vectors.weights.copy(), losses, rows, len(set(comm.allgather(bits))) == 1)


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
