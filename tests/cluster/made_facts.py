"""Facts of ranks as the doctor gathers them, of which a test says what is not as it should be."""

from __future__ import annotations

import dataclasses
from typing import Any

from hpcnn.cluster.facts import Facts, Threads
from hpcnn.cluster.preflight import Place

PREFIX = "/opt/openmpi"
WELL = Facts(
    place=Place("n1", "prterun", {}),
    mpi="Open MPI v5.0.11, package: Open MPI",
    libraries=(f"{PREFIX}/lib/libmpi.so.40",),
    mpirun=f"{PREFIX}/bin/prterun",
    versions={"hpcnn": "0.1.0", "numpy": "2.4.6", "torch": "2.13.0+cpu"},
    code="0123456789ab",
    processor="A processor",
    cores_on_host=4,
    cores=(0, 1, 2, 3),
    cores_now=(0, 1, 2, 3),
    threads=Threads(1, "cores / ranks"),
)


def rank(host: str = "n1", launcher: str = "prterun", variables: dict[str, str] | None = None, **changes: Any) -> Facts:
    """One rank with which all is well but for `changes`."""
    return dataclasses.replace(WELL, place=Place(host, launcher, variables or {}), **changes)


def cores(threads: int, usable: tuple[int, ...], host: str = "n1", on_host: int = 4) -> Facts:
    return rank(host, threads=Threads(threads, "--threads"), cores=usable, cores_now=usable, cores_on_host=on_host)
