"""Run under mpirun by test_two_threads.py: worlds of two ranks, each of two threads a rank.

Usage: two_threads_driver.py BACKEND CSV. Each world takes the same five steps twice; rank 0 prints, as JSON, digests of
every rank's and repeat's weights, gradient and losses, and whether replicas were equal.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from mpi4py import MPI

from tests.mpi.training_driver import five_steps
from tests.wrappers.backends import chosen

RANKS, REPEATS, THREADS = 2, 2, 2


def digest(comm: Any, backend: str, csv: str) -> tuple[str, bool]:
    found = five_steps(comm, csv, **chosen(backend), threads=THREADS, validation_fraction=0.0)
    whole = hashlib.sha256(found.weights.tobytes() + found.gradient.tobytes() + repr(found.losses).encode())
    return whole.hexdigest(), found.replicas_equal


def main(backend: str, csv: str) -> None:
    world = MPI.COMM_WORLD
    assert world.size % RANKS == 0
    comm = world.Split(world.rank // RANKS)
    found = world.gather([digest(comm, backend, csv) for _ in range(REPEATS)])
    if world.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
