"""The facts that make a run repeatable: versions, machine, MPI, git commit."""

from __future__ import annotations

import datetime
import os
import platform
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = (
    "numpy", "torch", "tensorflow", "tensorflow-cpu", "keras", "jax", "theano", "lasagne", "horovod", "mpi4py", "h5py",
    "pandas",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Versions of what is installed, without importing it."""
    import hpcnn

    found = {"hpcnn": hpcnn.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """This rank's host as the kernel describes it; `affinity` is the cores that this process may use."""
    return {
        "host": socket.gethostname(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def libmpi_loaded() -> str:
    """Path of the MPI library that this process has mapped: what really runs, whatever was meant to."""
    return next(iter(libmpis_loaded()), "none")


def libmpis_loaded() -> list[str]:
    """Paths of all of them; those of two installations in one process are a fault."""
    with open("/proc/self/maps", encoding="utf-8") as stream:
        paths = {line.rstrip().split(maxsplit=5)[-1] for line in stream if "libmpi" in line and ".so" in line}
    return sorted(path for path in paths if Path(path).name.startswith(("libmpi.so", "libmpi_", "libmpich.")))


def git_commit() -> str | None:
    """Commit of the checkout that this package runs from ("-dirty" where it was changed), or None outside one."""
    folder = str(Path(__file__).resolve().parent)
    try:
        shown = subprocess.run(
            ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            capture_output=True, text=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return shown.stdout.strip() or None


def command_line() -> list[str]:
    return ["hpcnn", *sys.argv[1:]]


def timestamp(ago: float = 0.0) -> str:
    """The time `ago` seconds before now, in UTC, to the second."""
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago)
    return then.isoformat(timespec="seconds")
