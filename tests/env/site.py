"""A site's MPI as its module system shows it: a folder first on PATH with the launcher and the compiler of one MPI.

Debian's Open MPI 4 and MPICH lie side by side under other names (mpicc.openmpi, mpicc.mpich). Where they aren't
installed the tests skip with the command that brings them; with HPCNN_REQUIRE_SITE=1, as in .ci/run, they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.env.conftest import CLONE, ONE_PYTHON

APT = "apt-get install gcc libc6-dev libopenmpi-dev openmpi-bin libmpich-dev mpich environment-modules"
MPIS = ("openmpi", "mpich")
MPIRUN = {"openmpi": ("mpirun", "--oversubscribe"), "mpich": ("mpirun",)}
HELPER = "hydra_pmi_proxy"  # MPICH's launcher looks for it beside itself


def require(*programs: str) -> None:
    """End the test, one way or the other, where a program is missing."""
    if not (missing := [name for name in programs if not Path(name).exists() and shutil.which(name) is None]):
        return
    reason = f"{', '.join(missing)} is missing: {APT}"
    if os.environ.get("HPCNN_REQUIRE_SITE") == "1":
        pytest.fail(f"HPCNN_REQUIRE_SITE=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@dataclass
class Site:
    """One machine with one MPI loaded; `variables` is the whole environment of what runs there."""

    mpi: str
    variables: dict[str, str]

    def popen(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            env=self.variables,
            cwd=CLONE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str) -> tuple[int, str, str]:
        """(status, standard output, standard error)"""
        process = self.popen(*command)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def ranks(self, *command: str, launcher: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """The command on two ranks of this site's MPI, in its environment."""
        return self.run("bash", "env/with.sh", "torch", *(launcher or MPIRUN[self.mpi]), "-np", "2", *command)


def load(mpi: str, folder: Path, root: Path, pins: Path) -> Site:
    """What `module load` does: the programs of one MPI first on PATH. pip keeps the settings that it has here."""
    programs = folder / mpi
    programs.mkdir()
    for name in ("mpicc", "mpicxx", "mpirun"):
        (programs / name).symlink_to(f"/usr/bin/{name}.{mpi}")
    if mpi == "mpich":
        (programs / HELPER).symlink_to(f"/usr/bin/{HELPER}")
    kept = (
        "PIP_",
        "OPENBLAS_",
        "SSL_",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
    )
    return Site(
        mpi,
        {name: value for name, value in os.environ.items() if name.startswith(kept)}
        | {
            "PATH": f"{programs}:/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHON": str(ONE_PYTHON),
            "HPCNN_ENV_ROOT": str(root),
            "HPCNN_CONSTRAINTS": str(pins),
            "CFLAGS": "-O0",  # mpi4py compiles in half the time
            "OMP_NUM_THREADS": "1",
        },
    )


def require_mpis() -> None:
    headers = Path(sysconfig.get_path("include", vars={"installed_base": sys.base_prefix})) / "Python.h"
    require(*(f"/usr/bin/{name}.{mpi}" for name in ("mpicc", "mpirun") for mpi in MPIS), str(headers), "gcc")
