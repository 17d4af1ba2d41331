"""What ranks do in the tests of Horovod's reducer: real Horovod on real ranks, started and ended in each call."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn.errors import HpcnnError
from hpcnn.parallel.reducers import make_reducer
from hpcnn.reducer_options import resolve_reducer
from hpcnn.wrappers.import_alone import during
from hpcnn.wrappers.keras_import import import_keras
from hpcnn.wrappers.registry import open_backend
from tests.parallel.reducers.sums import Outcome, add, contribution


def framework_imported(backend: str) -> None:
    """As its wrapper does, before a reducer is made, with a thread as in other tests on these ranks."""
    if backend.endswith("tensorflow"):
        import_keras("tensorflow")
        open_backend("tensorflow", {}, threads=1)


def added_by(
    comm: Any,
    backend: str,
    options: dict[str, Any],
    sizes: list[int],
    turns: int,
    posted: bool,
    rows: list[int] | None = None,
    stages: int = 1,
) -> Outcome:
    """Messages of several segments, added `turns` times over; a rank without rows brings zeros.

    With several `stages`, ranks `stages` apart hold the same one."""
    framework_imported(backend)
    replicas = comm if stages == 1 else comm.Split(comm.rank % stages, comm.rank)
    reducer = make_reducer("horovod", replicas, resolve_reducer("horovod", options), world=comm, backend=backend)
    messages = [reducer.allocate(size) for size in sizes]
    rows = rows or [1] * comm.size
    sums = []
    for turn in range(turns):
        reducer.begin(rows[comm.rank], sum(rows))
        for message in messages:
            message[:] = contribution(comm.rank, len(message), turn) if rows[comm.rank] else 0.0
        add(reducer, messages, posted)
        sums += [message.copy() for message in messages]
    described = reducer.describe()
    reducer.close()
    return Outcome(sums, described)


def refusal(
    comm: Any,
    backend: str,
    options: dict[str, Any] | None = None,
    variables: dict[str, str] | None = None,
    stages: int = 1,
) -> str:
    """What every rank is told."""
    framework_imported(backend)
    replicas = comm if stages == 1 else comm.Split(comm.rank % stages, comm.rank)
    try:
        with during(os.environ, variables or {}):
            reducer = make_reducer(
                "horovod", replicas, resolve_reducer("horovod", options or {}), world=comm, backend=backend
            )
    except HpcnnError as error:
        return str(error)
    reducer.close()
    return ""


def refusal_of_worlds_of_one(comm: Any) -> str:
    """What a rank is told where Horovod, the real one, was started over other ranks than MPI's."""
    from hpcnn.parallel.reducers.horovod_bindings import TorchBinding
    from hpcnn.parallel.reducers.horovod_reducer import check_world

    hvd = TorchBinding().hvd
    hvd.init(comm=comm.Split(comm.rank))
    try:
        check_world(hvd, comm)
    except HpcnnError as error:
        return str(error)
    finally:
        hvd.shutdown()
    return ""


def frameworks_loaded(comm: Any, backend: str) -> list[str]:
    """Frameworks that a process of its own has after a sum; run by test_horovod.py under mpirun, not in the pool."""
    added_by(comm, backend, {}, [10], 1, False)
    return sorted({"torch", "tensorflow", "jax"} & set(sys.modules))


def main(out: str, backend: str) -> None:
    from mpi4py import MPI

    found = frameworks_loaded(MPI.COMM_WORLD, backend)
    if MPI.COMM_WORLD.rank == 0:
        Path(out).write_text(" ".join(found), encoding="utf-8")


def adasum(vectors: list[np.ndarray]) -> np.ndarray:
    """Pair by pair, as its authors define it: Maleki et al. (2021), https://arxiv.org/abs/2006.02924, section 3."""
    vectors = [one.astype(np.float64) for one in vectors]
    while len(vectors) > 1:
        vectors = [_pair(*vectors[place : place + 2]) for place in range(0, len(vectors), 2)]
    return vectors[0]


def _pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    dot, aa, bb = a @ b, a @ a, b @ b
    return (1 - dot / (2 * aa) if aa else 1) * a + (1 - dot / (2 * bb) if bb else 1) * b


if __name__ == "__main__":
    main(*sys.argv[1:])
