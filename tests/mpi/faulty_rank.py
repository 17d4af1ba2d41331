"""`hpcnn` with a fault on one rank at one step: it raises or is killed, as its own code, host or kernel may do.

Usage: faulty_rank.py KIND RANK STEP hpcnn's own arguments. STEP may name an operation of that step, as in 3@B1.2; what
kills a rank there has it take long before, so that a heartbeat tells of it. Only the moment is arranged; what happens
then is real.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from hpcnn import cli
from hpcnn.parallel.executor import Executor
from hpcnn.records.heartbeat import INTERVAL


def main(kind: str, rank: int, moment: str, arguments: list[str]) -> int:
    from mpi4py import MPI

    step, _, operation = moment.partition("@")
    original, done = Executor.step, [0]

    def faulty(self: Executor, *batch: Any) -> Any:
        if MPI.COMM_WORLD.rank == rank and done[0] == int(step):
            if not operation:
                fail(kind)
            fail_within(self, kind, operation)
        done[0] += 1
        return original(self, *batch)

    Executor.step = faulty  # type: ignore[method-assign,assignment]
    return cli.main(arguments)


def fail(kind: str) -> None:
    if kind == "raise":
        raise RuntimeError("the disk of this node is on fire")
    os.kill(os.getpid(), signal.Signals[kind])


def fail_within(executor: Executor, kind: str, operation: str) -> None:
    """Arrange that the rank fails once it has come to `operation`."""

    def instead(*given: Any) -> None:
        if kind != "raise":
            time.sleep(1.5 * INTERVAL)
        fail(kind)

    names = [str(call[1]) for call in executor._calls]
    place = names.index(operation)
    executor._calls[place] = (instead, *executor._calls[place][1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
