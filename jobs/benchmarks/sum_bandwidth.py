"""Bandwidth of one sum over the ranks of an mpirun: reducers beside a bare Allreduce of mpi4py, in the same process.

    mpirun -np 2 python jobs/benchmarks/sum_bandwidth.py OUT.json --ways bare plain nodes flat

reducer_speed.py starts it and makes the table. In each round every way has its turn, in the other order every second
time; a turn is as many sums of one message, one after another, as take about `TURN_SECONDS`, and counts as its slowest
rank. Nothing is computed between them, so this is the sum alone, blocking; what is hidden behind computing is another
matter.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcnn.parallel.reducers import make_reducer
from hpcnn.records.files import write_json
from hpcnn.reducer_options import resolve_reducer

BARE = "bare"
WAYS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "plain": ("plain", {}),
    "nodes": ("mpi", {"algorithm": "nodes"}),
    "flat": ("mpi", {"algorithm": "flat"}),
    "horovod": ("horovod", {}),
}
"""Reducers with their options, by the names that results have for them."""
TURN_SECONDS = 0.05
FEWEST_SUMS, WARM_UP = 3, 3

Sum = Callable[[], None]


class Ways:
    """Ways to add messages over `comm`. Collective. Each reducer is made once, and gives the memory of all messages."""

    def __init__(self, comm: Any, names: list[str]) -> None:
        self._comm = comm
        self._reducers = {name: self._made(*WAYS[name]) for name in names if name != BARE}
        self._names = names

    def _made(self, reducer: str, options: Mapping[str, Any]) -> Any:
        return make_reducer(reducer, self._comm, resolve_reducer(reducer, options), world=self._comm, backend="torch")

    def sums(self, message: int, count: int) -> dict[str, Sum]:
        """Each adds message number `message`, of `count` numbers, in place."""
        return {name: self._sum(self._reducers.get(name), message, count) for name in self._names}

    def _sum(self, reducer: Any, message: int, count: int) -> Sum:
        array = np.empty(count, np.float32) if reducer is None else reducer.allocate(count)
        array[:] = 0.0  # its pages are there before the first sum
        if reducer is None:
            return lambda: self._comm.Allreduce(MPI.IN_PLACE, array, op=MPI.SUM)
        return lambda: reducer.reduce(message, array)

    def close(self) -> None:
        for reducer in self._reducers.values():
            reducer.close()


def turn(comm: Any, add: Sum, times: int) -> float:
    """Seconds of one sum, of the slowest rank."""
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(times):
        add()
    return float(comm.allreduce(time.perf_counter() - began, op=MPI.MAX)) / times


def measured(comm: Any, sums: Mapping[str, Sum], rounds: int) -> dict[str, list[float]]:
    """Seconds of a sum by each way, round by round."""
    seconds: dict[str, list[float]] = {name: [] for name in sums}
    once = max(turn(comm, add, WARM_UP) for add in sums.values())
    times = max(FEWEST_SUMS, round(TURN_SECONDS / once))
    for place in range(rounds):
        for name, add in list(sums.items())[:: -1 if place % 2 else 1]:
            seconds[name].append(turn(comm, add, times))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the bandwidth of a sum over ranks.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--ways", nargs="+", choices=(BARE, *WAYS), required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True, metavar="BYTES")
    parser.add_argument("--rounds", type=int, required=True)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    ways = Ways(comm, options.ways)
    seconds = {
        size: measured(comm, ways.sums(place, size // 4), options.rounds) for place, size in enumerate(options.sizes)
    }
    ways.close()
    if comm.rank == 0:
        library = MPI.Get_library_version().split(",")[0]
        write_json(options.out, {"ranks": comm.size, "library": library, "seconds": seconds})


if __name__ == "__main__":
    main()
