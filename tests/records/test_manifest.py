"""The facts of run.json are those of the machine that runs, and finding them imports nothing heavy."""

from __future__ import annotations

import datetime
import os
import re
import socket
import subprocess
import sys

import numpy

import hpcnn
from hpcnn.records import manifest
from tests.support.mpi import REPOSITORY


def test_versions_are_those_that_are_installed() -> None:
    found = manifest.versions()
    assert found["hpcnn"] == hpcnn.__version__
    assert found["numpy"] == numpy.__version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def test_versions_are_found_without_importing_what_they_are_of() -> None:
    script = (
        "import sys; from hpcnn.records import manifest; manifest.versions(); manifest.machine()\n"
        "print(sorted({'torch', 'numpy', 'mpi4py', 'pandas', 'h5py'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_the_machine_is_this_one() -> None:
    found = manifest.machine()
    assert found["host"] == socket.gethostname()
    assert found["affinity"] == sorted(os.sched_getaffinity(0))
    assert found["memory_bytes"] > 2**27
    assert found["processor"]


def test_a_process_without_mpi_has_no_mpi_library() -> None:
    script = "from hpcnn.records import manifest; print(manifest.libmpi_loaded())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "none\n"


def test_the_commit_is_gits_where_the_package_runs_from_a_checkout() -> None:
    commit = manifest.git_commit()
    asked = ["git", "-C", str(REPOSITORY), "rev-parse", "--short=12", "HEAD"]
    try:
        shown = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        shown = ""
    assert (commit or "").removesuffix("-dirty") == shown


def test_a_timestamp_is_utc_to_the_second() -> None:
    text = manifest.timestamp()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", text)
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(text)
    assert abs(age.total_seconds()) < 60
