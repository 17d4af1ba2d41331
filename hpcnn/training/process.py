"""What a rank's process is set to before a framework is imported: threads, and glibc's allocator.

Threads: under mpirun each process sees all cores and takes as many threads, or one, as its library fancies. So they
are set, from --threads, OMP_NUM_THREADS or the cores that the ranks of a host share, and recorded.

Allocator: glibc gives every large activation back to the kernel and asks for it again in the next step; the page
faults cost as much as the arithmetic at large batches. With mmap off and a high trim threshold, memory is kept between
steps.
"""

from __future__ import annotations

import ctypes
import functools
import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcnn.data.agree import attempt
from hpcnn.errors import ConfigError

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_OPENBLAS_CALLS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "")
)
MOST_THREADS = 4096

# <malloc.h>: parameters of mallopt(3).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
TUNED = {"M_MMAP_MAX": 0, "M_TRIM_THRESHOLD": 2**31 - 1, "M_TOP_PAD": 256 << 20}


@dataclass(frozen=True)
class Threads:
    """Threads of this rank, what decided, and a warning for people (empty where there is nothing to say).

    `cores`: how many it might use then, before a framework was imported."""

    count: int
    source: str
    warning: str
    cores: int = 0


def decide_threads(asked: int | None, environ: Mapping[str, str], comm: Any) -> Threads:
    """Collective. --threads, else OMP_NUM_THREADS, else this rank's part of the cores it may use on its host.

    Raises ConfigError, on all ranks alike, for an OMP_NUM_THREADS that is no number or a number that no host can serve.
    """
    host, cores = socket.gethostname(), frozenset(os.sched_getaffinity(0))
    everyone: list[tuple[str, frozenset[int]]] = comm.allgather((host, cores))
    here = [other for where, other in everyone if where == host]
    return attempt(comm, lambda: _decide(asked, environ, host, cores, here))


def attempt_threads(asked: int | None, comm: Any) -> Threads:
    """Collective. The rank's threads, set before a framework is imported."""
    threads = decide_threads(asked, _environment_at_first(), comm)
    set_threads(threads.count, os.environ)
    return threads


@functools.cache
def _environment_at_first() -> Mapping[str, str]:
    """What the first run of a process sets is not what the person asked the second for."""
    return dict(os.environ)


def _decide(
    asked: int | None, environ: Mapping[str, str], host: str, cores: frozenset[int], here: Sequence[frozenset[int]]
) -> Threads:
    """`here`: the cores of every rank of this host, whose own are `cores`."""
    count, source = max(1, len(cores) // sum(1 for other in here if other & cores)), "cores / ranks"
    variable = environ.get("OMP_NUM_THREADS")
    if asked is not None:
        count, source = asked, "--threads"
    elif variable:
        text = variable.split(",")[0].strip()  # a list is one number a level of nesting; the first is ours
        if not text.isdecimal() or int(text) < 1:
            raise ConfigError(f"OMP_NUM_THREADS={variable!r} is no number of at least 1: mend it or give --threads")
        count, source = int(text), "OMP_NUM_THREADS"
    if count > MOST_THREADS:
        raise ConfigError(f"{count} threads (from {source}) are out of range: give at most {MOST_THREADS}")
    return Threads(count, source, thread_warning(count, host, cores, here), len(cores))


def thread_warning(count: int, host: str, cores: frozenset[int], here: Sequence[frozenset[int]]) -> str:
    """Of threads that will wait for each other: too many on the host, or bound to fewer cores than they are."""
    available, on_host = len(frozenset[int]().union(*here)), os.cpu_count() or 1
    if count * len(here) > available:
        more = "" if available >= on_host else f", or give them more of its {on_host}: {_wider(count)}"
        return (
            f"ranks x threads, {len(here)} x {count}, are more than the cores of {host}, {available}: they will wait "
            f"for each other; use fewer --threads or ranks{more}"
        )
    if count > len(cores):
        return (
            f"a rank with {count} threads is bound to {len(cores)} of the cores of {host}, which they share: "
            f"{_wider(count)}, or use --threads {len(cores)}"
        )
    return ""


def _wider(count: int) -> str:
    return f"mpirun --bind-to none, srun --cpus-per-task={count}"


def set_threads(count: int, environ: MutableMapping[str, str]) -> None:
    """For the libraries that this process has yet to load, and for NumPy's BLAS, which is loaded already."""
    for name in _THREAD_VARIABLES:
        environ[name] = str(count)
    with open("/proc/self/maps", encoding="utf-8") as stream:
        paths = {line.split(maxsplit=5)[-1].strip() for line in stream if "openblas" in line}
    for path in filter(os.path.isfile, paths):
        library = ctypes.CDLL(path)
        for call in [name for name in _OPENBLAS_CALLS if hasattr(library, name)][:1]:
            getattr(library, call)(count)


def set_allocator(kind: str) -> dict[str, Any]:
    """Tune glibc's allocator ("tuned") or leave it ("system"); returns what holds, for run.json."""
    if kind == "system":
        return {"kind": "system"}
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return {"kind": "system", "why": "this C library has no mallopt"}
    for name, parameter in (
        ("M_MMAP_MAX", _M_MMAP_MAX),
        ("M_TRIM_THRESHOLD", _M_TRIM_THRESHOLD),
        ("M_TOP_PAD", _M_TOP_PAD),
    ):
        if mallopt(parameter, TUNED[name]) != 1:
            return {"kind": "system", "why": f"mallopt({name}) was refused"}
    return {"kind": "tuned", **TUNED}
