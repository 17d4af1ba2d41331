"""`hpcnn` with a fault on one rank at one step: it raises or is killed, as its own code, host or kernel may do.

Usage: faulty_rank.py KIND RANK STEP hpcnn's own arguments. Only the moment is arranged; what happens then is real.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from hpcnn import cli
from hpcnn.parallel.executor import Executor


def main(kind: str, rank: int, step: int, arguments: list[str]) -> int:
    from mpi4py import MPI

    original, done = Executor.step, [0]

    def faulty(self: Executor, *batch: Any) -> Any:
        if MPI.COMM_WORLD.rank == rank and done[0] == step:
            if kind == "raise":
                raise RuntimeError("the disk of this node is on fire")
            os.kill(os.getpid(), signal.Signals[kind])
        done[0] += 1
        return original(self, *batch)

    Executor.step = faulty  # type: ignore[method-assign]
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
