"""Run under mpirun by test_doctor.py: a rank waits, under a watch, for a message that another never sends."""

from __future__ import annotations

import time

from hpcnn.cluster.doctor import Watch

STUCK = 1.0


def main() -> None:
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank:
        time.sleep(600)
    watch = Watch(STUCK)
    watch.doing = "a message that never comes"
    MPI.COMM_WORLD.recv(source=1)


if __name__ == "__main__":
    main()
