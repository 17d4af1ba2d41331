"""Bytes between two nodes of one sum over their ranks. node_traffic.py starts it there by mpirun, and makes the table.

python jobs/benchmarks/sum_traffic.py OUT.json --bytes 16777216 --times 4
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcnn.parallel.reducers import make_reducer
from hpcnn.records.files import write_json
from hpcnn.reducer_options import resolve_reducer

WAYS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "nodes": ("mpi", {"algorithm": "nodes"}),
    "flat": ("mpi", {"algorithm": "flat"}),
    "plain": ("plain", {}),
    "nodes, float16": ("mpi", {"algorithm": "nodes", "wire": "float16"}),
    "flat, float16": ("mpi", {"algorithm": "flat", "wire": "float16"}),
}
COUNTERS = Path("/sys/class/net/eth0/statistics")
SETTLE_SECONDS = 0.1
"""After which the last acknowledgements have gone through."""


def traffic() -> int:
    """Bytes through this node's interface so far, in both directions."""
    time.sleep(SETTLE_SECONDS)
    return sum(int((COUNTERS / name).read_text()) for name in ("tx_bytes", "rx_bytes"))


def measured(comm: Any, way: str, count: int, times: int) -> dict[str, Any]:
    """Bytes and seconds of one sum of `count` numbers, and whether it was right on this rank and all others."""
    name, options = WAYS[way]
    reducer = make_reducer(name, comm, resolve_reducer(name, options), world=comm, backend="torch")
    message = reducer.allocate(count)
    message[:] = 1.0
    reducer.reduce(0, message)  # connections are made
    right = bool((message == comm.size).all())  # small whole numbers: no format rounds them
    comm.Barrier()
    before = traffic()
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(times):
        message[:] = 1.0
        reducer.reduce(0, message)
    comm.Barrier()
    seconds = time.perf_counter() - began
    after = traffic()
    right = comm.allreduce(right and bool((message == comm.size).all()), op=MPI.LAND)
    described = reducer.describe()
    del message
    reducer.close()
    return {"bytes": (after - before) / times, "seconds": seconds / times, "right": right, **described}


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the bytes of a sum between two nodes.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--bytes", type=int, required=True, help="of the message")
    parser.add_argument("--times", type=int, required=True, help="sums that are counted")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    hosts = comm.allgather(MPI.Get_processor_name())
    found = {way: measured(comm, way, options.bytes // np.dtype(np.float32).itemsize, options.times) for way in WAYS}
    if comm.rank == 0:
        write_json(options.out, {"hosts": hosts, "message_bytes": options.bytes, "ways": found})


if __name__ == "__main__":
    main()
