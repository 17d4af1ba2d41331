"""What ranks do in the tests of the data room: calls of the pool, and a script for mpirun.

    python load_on_ranks.py CSV GLOBAL_BATCH LOGICAL_SHARDS

The script ends as the command does: a rank that meets an error prints it as a JSON line and exits with its status.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pandas as _pandas  # noqa: F401  (its own files are read before a count of bytes begins)

from hpcnn.data.agree import Communicator
from hpcnn.data.dataset import Dataset, load_dataset
from hpcnn.data.normalise import fit_normalisation
from hpcnn.data.order import BatchOrder
from hpcnn.errors import HpcnnError


def load(comm: Communicator, path: Path, **options: Any) -> Dataset:
    return load_dataset(path, comm=comm, **options)


def load_own(comm: Communicator, paths: list[Path]) -> Dataset:
    """Each rank is given a path of its own."""
    return load_dataset(paths[comm.rank], comm=comm)


def report(comm: Communicator, path: Path, batch: int, shards: int | None, epoch: int) -> dict[str, Any]:
    """What this rank has read (bytes, by its own count and by the kernel's), holds and deals."""
    before = bytes_read()
    dataset = load_dataset(path, comm=comm, global_batch=batch, logical_shards=shards)
    read = bytes_read() - before
    order = BatchOrder(dataset.rows, dataset.logical_shards, batch, 0.1, seed=7)
    normalisation = fit_normalisation("standard", dataset, order, comm)
    return {
        "read": read,
        "counted": dataset.bytes_read,
        "first_row": dataset.first_row,
        "rows": len(dataset.features),
        "batches": batches(dataset, order, epoch),
        "normalisation": (normalisation.shift.tobytes(), normalisation.scale.tobytes()),
    }


def bytes_read() -> int:
    """By this process so far: rchar of /proc/self/io, which the kernel counts."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


def batches(dataset: Dataset, order: BatchOrder, epoch: int) -> list[list[tuple[int, str]]]:
    """For each step, this rank's file rows with a digest of their pixels and label."""
    steps = []
    for step in range(order.steps_per_epoch):
        rows = order.rows(epoch, step, dataset.shards)
        assert len(rows) == order.count(step, dataset.shards)
        pixels, labels = dataset.features[rows - dataset.first_row], dataset.take_labels(rows)
        digests = [hashlib.sha256(x.tobytes() + bytes([y])).hexdigest() for x, y in zip(pixels, labels, strict=True)]
        steps.append([(int(row), digest) for row, digest in zip(rows, digests, strict=True)])
    return steps


def main(path: str, batch: int, shards: int) -> None:
    from mpi4py import MPI

    try:
        load_dataset(path, comm=MPI.COMM_WORLD, global_batch=batch, logical_shards=shards or None)
    except HpcnnError as error:
        print(json.dumps({"rank": MPI.COMM_WORLD.rank, "error": str(error)}), flush=True)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
