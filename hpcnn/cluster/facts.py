"""What one rank tells of itself to the doctor: libraries, versions, cores, GPUs, leftovers. Gathered, not judged."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hpcnn
from hpcnn.cluster.launch import place_of
from hpcnn.cluster.preflight import MPIRUN_AND_DAEMONS, Place, ancestors, nearest_launcher
from hpcnn.errors import BackendError
from hpcnn.parallel.reducers.device_reducer import mpi_reads_gpus
from hpcnn.records import manifest
from hpcnn.training.gpus import VISIBLE, chosen_of, installed_gpus
from hpcnn.wrappers.horovod_built import find_horovod

_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
"""Who numbers the ranks of a host before MPI has started; the nearest launcher first."""
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables by which OpenMP libraries bind the process that loads them."""


@dataclass(frozen=True)
class Imported:
    """A backend, loaded in a process of its own: the cores it was left with, or why it did not load."""

    backend: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Threads:
    """What a training would take: how many, what decides, or the words of its refusal."""

    count: int = 1
    source: str = ""
    error: str = ""


@dataclass(frozen=True)
class Facts:
    """Of one rank. `cores`: those it might use when the process began; `cores_now`: with MPI and NumPy loaded.

    `libraries`: the MPI libraries that it has mapped. `mpirun`: the one that started it, or that of PATH, or "".
    `gpus`: UUIDs of those that it sees. `stale`: folders of mpiruns that are no more. `ahead`: seconds that its clock
    is ahead of rank 0's. `imported` is of one rank a host.
    """

    place: Place
    mpi: str
    libraries: tuple[str, ...]
    mpirun: str
    versions: Mapping[str, str]
    code: str
    processor: str
    cores_on_host: int
    cores: tuple[int, ...]
    cores_now: tuple[int, ...]
    threads: Threads
    binding: Mapping[str, str] = field(default_factory=dict)
    horovod: str = ""
    horovod_for: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    mpi_reads_gpus: bool = False
    stale: tuple[str, ...] = ()
    ahead: float = 0.0
    imported: Imported | None = None


def gather_facts(
    environ: Mapping[str, str], cores: tuple[int, ...], threads: Threads, ahead: float, imported: Imported | None
) -> Facts:
    """Of this process, in which MPI runs where it can be loaded; `cores` as they were when the process began."""
    built, machine = find_horovod(), manifest.machine()
    return Facts(
        place=place_of(environ),
        mpi=_mpi_version(),
        libraries=tuple(manifest.libmpis_loaded()),
        mpirun=mpirun_path(),
        versions=manifest.versions(),
        code=code_digest(Path(hpcnn.__file__).parent),
        processor=machine["processor"],
        cores_on_host=machine["cores"] or 1,
        cores=cores,
        cores_now=tuple(machine["affinity"]),
        threads=threads,
        binding={name: environ[name] for name in BINDING if name in environ},
        horovod="" if built is None else str(built),
        horovod_for={} if built is None else built.frameworks,
        gpus=visible_gpus(environ),
        mpi_reads_gpus=mpi_reads_gpus(),
        stale=tuple(map(str, stale_sessions(Path(tempfile.gettempdir())))),
        ahead=ahead,
        imported=imported,
    )


def _mpi_version() -> str:
    from hpcnn.training.describe import mpi_version

    with contextlib.suppress(ImportError, RuntimeError):
        return mpi_version()
    return ""


def visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """UUIDs of what this process would see; none where there is no driver."""
    try:
        return chosen_of(installed_gpus(), environ.get(VISIBLE))
    except BackendError:
        return ()


def mpirun_path() -> str:
    """Of the mpirun, or its daemon, above this process; "" under srun, which needs none; else of PATH's mpirun."""
    pid, name = nearest_launcher(ancestors(os.getpid()))
    if pid and name not in MPIRUN_AND_DAEMONS:
        return ""
    if pid:
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/exe")
    found = shutil.which("mpirun")
    return os.path.realpath(found) if found else ""


def local_rank(environ: Mapping[str, str]) -> int | None:
    """This process's number among those of its host, by the launcher's variables; None where none says."""
    texts = (environ.get(name, "") for name in _LOCAL_RANKS)
    return next((int(text) for text in texts if text.isdigit()), None)


def code_digest(package: Path) -> str:
    """Of this package's modules: clones of two hosts may be apart though both say version 0.1.0."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def stale_sessions(folder: Path, proc: Path = Path("/proc")) -> list[Path]:
    """This user's session folders of mpiruns that are no more.

    Open MPI 5 names them by the number of mpirun's process alone, and an mpirun that is given the number of a dead one
    finds its files and gives up: "The PMIx server's listener thread failed to start".
    """
    found = []
    for path in sorted(folder.glob("ompi.*")):
        number = path.name.removeprefix("ompi.")
        with contextlib.suppress(OSError):
            if number.isdigit() and path.stat().st_uid == os.getuid() and not (proc / number).exists():
                found.append(path)
    return found


def clock_ahead(comm: Any) -> float:
    """Collective. Seconds that this host's clock is ahead of rank 0's, as files' times and heartbeats have them."""
    from hpcnn.records.clocks import read_clocks

    offset = read_clocks(comm).offset  # of the monotonic clocks
    since = time.time() - time.monotonic()
    first: float = comm.bcast(since)
    return since - offset - first
