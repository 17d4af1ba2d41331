"""Run under mpirun by test_process.py: what each rank decides about threads, as a line of JSON on rank 0."""

from __future__ import annotations

import json
import os
import sys

from mpi4py import MPI

from hpcnn.errors import ConfigError
from hpcnn.training.process import decide_threads

CASES = {
    "nothing": (None, {}),
    "empty variable": (None, {"OMP_NUM_THREADS": ""}),
    "variable": (None, {"OMP_NUM_THREADS": "3"}),
    "list": (None, {"OMP_NUM_THREADS": " 2,4"}),
    "flag": (5, {"OMP_NUM_THREADS": "3"}),
    "flag over a wrong variable": (5, {"OMP_NUM_THREADS": "many"}),
    "words": (None, {"OMP_NUM_THREADS": "many"}),
    "zero": (None, {"OMP_NUM_THREADS": "0"}),
    "negative": (None, {"OMP_NUM_THREADS": "-1"}),
    "fraction": (None, {"OMP_NUM_THREADS": "1.5"}),
    "superscript": (None, {"OMP_NUM_THREADS": "²"}),
    "too many": (None, {"OMP_NUM_THREADS": "1000000"}),
}


def main() -> None:
    comm = MPI.COMM_WORLD
    found = {}
    for name, (asked, environ) in CASES.items():
        try:
            decided = decide_threads(asked, environ, comm)
            found[name] = {"count": decided.count, "source": decided.source, "warning": decided.warning}
        except ConfigError as error:
            found[name] = {"error": str(error), "agreed": error.agreed}
    # One rank alone reads a wrong variable: all have to hear of it.
    try:
        decide_threads(None, {"OMP_NUM_THREADS": "many" if comm.rank == comm.size - 1 else "1"}, comm)
    except ConfigError as error:
        found["one rank"] = {"error": str(error), "agreed": error.agreed}
    everyone = comm.gather({"cores": sorted(os.sched_getaffinity(0)), **found})
    if comm.rank == 0:
        json.dump(everyone, sys.stdout)


if __name__ == "__main__":
    main()
