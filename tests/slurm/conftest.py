"""One private cluster for all tests of this folder, and a folder to submit from.

Without Slurm or without root the tests skip with the reason; with HPCNN_REQUIRE_SLURM=1, as in .ci/run, they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.slurm.cluster import CLONE, Cluster, obstacle


def give_up(reason: str) -> NoReturn:
    if os.environ.get("HPCNN_REQUIRE_SLURM") == "1":
        pytest.fail(f"HPCNN_REQUIRE_SLURM=1, but {reason}", pytrace=False)
    pytest.skip(reason.splitlines()[0])


@pytest.fixture
def short_root() -> Iterator[Path]:
    """Below /tmp and short: the daemons' sockets lie there, and the path of a socket has 107 characters at most."""
    root = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if reason := obstacle():
        give_up(reason)
    environment = subprocess.run(["bash", CLONE / "env/with.sh", "torch", "true"], capture_output=True, text=True)
    if environment.returncode != 0:
        give_up(environment.stderr.strip())
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp")))
    try:
        try:
            cluster.start(owner=os.getpid())
        except subprocess.CalledProcessError as error:
            give_up(f"the cluster does not start: {error.stderr.strip()}")
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(cluster.root, ignore_errors=True)


@pytest.fixture
def submit_folder(tmp_path: Path) -> Path:
    """A clone in small, so that a job litters nothing: the code linked in, 240 of the digits, no results yet."""
    for name in ("env", "hpcnn", "jobs"):
        (tmp_path / name).symlink_to(CLONE / name)
    (tmp_path / "data").mkdir()
    for name, rows in (("train.csv", 200), ("test.csv", 40)):
        with (CLONE / "data" / name).open() as table:
            lines = [next(table) for _ in range(1 + rows)]
        (tmp_path / "data" / name).write_text("".join(lines))
    return tmp_path
