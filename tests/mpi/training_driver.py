"""Run under mpirun by test_training.py: several trainings in one start of the ranks, since a start costs seconds.

Usage: training_driver.py CSV OUT. Rank 0 writes OUT/results.npz:
    gradient_M     the reduced gradient of step 0, computed in M micro-batches
    replicas_M     whether gradient and weights after five steps were the same bits on all ranks
    weights_M      weights after five steps
    rows           sorted file rows of epoch 1, gathered over ranks;  other: those of epoch 2 in order
and, by `train`, the runs OUT/first and OUT/second of the same configuration.
"""

from __future__ import annotations

import sys
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


def main(csv: str, out: Path) -> None:
    import os

    set_threads(1, os.environ)
    comm = MPI.COMM_WORLD
    results: dict[str, Any] = {}
    for micro_batches in MICRO_BATCHES:
        prepared = prepare(config(csv, micro_batches=micro_batches), comm, PhaseClock())
        for step in range(5):
            prepared.executor.step(local_batch(prepared, 1, step), prepared.rate.at(step))
            if step == 0:
                results[f"gradient_{micro_batches}"] = prepared.vectors.gradient.copy()
        bits = prepared.vectors.weights.tobytes() + prepared.vectors.gradient.tobytes()
        results[f"replicas_{micro_batches}"] = len(set(comm.allgather(bits))) == 1
        results[f"weights_{micro_batches}"] = prepared.vectors.weights.copy()
    order = prepared.order
    for name, epoch in (("rows", 1), ("other", 2)):
        mine = [order.rows(epoch, step, prepared.shards) for step in range(order.steps_per_epoch)]
        results[name] = np.concatenate([part for rank in comm.allgather(mine) for part in rank])
    results["validation"] = np.concatenate(
        [rows for rank in comm.allgather(list(prepared.validation_rows.values())) for rows in rank]
    )
    if comm.rank == 0:
        np.savez(out / "results.npz", **results)
    for name in ("first", "second"):
        train(config(csv, out=str(out), run_id=name, test=csv), comm)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
