"""No rank goes on to its first message while another is still in MPI_Init."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_wait_for_a_late_one_before_their_first_message(ranks: int) -> None:
    """Without a message of MPI's, which could be what the late rank is not ready for."""
    run = run_ranks(ranks, ["-c", PROGRAM])
    assert run.returncode == 0, run.stderr
    said = sorted(line for line in run.stdout.splitlines() if line)
    assert said == (["went on early"] if ranks == 1 else ["waited early", "waited early", "went on late"])
