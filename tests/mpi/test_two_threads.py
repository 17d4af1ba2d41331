"""Several threads a rank add in an order that does not change either: replicas and repeats agree, in torch other
processes too."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import IN_FULL
from tests.mpi.digits import BATCH, write_digits
from tests.mpi.two_threads_driver import RANKS, REPEATS
from tests.support.mpi import run_ranks
from tests.wrappers.backends import EVERY_BACKEND


@EVERY_BACKEND
def test_two_ranks_of_two_threads_leave_the_same_bits_each_time(backend: str, tmp_path: Path) -> None:
    csv = write_digits(tmp_path, 4 * BATCH + 2)
    worlds = 2 if backend == IN_FULL else 1
    # Threads that wait give their core away: they are more than the machine may have.
    run = run_ranks(
        worlds * RANKS, ["-m", "tests.mpi.two_threads_driver", backend, str(csv)],
        env={"OMP_WAIT_POLICY": "passive"}, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    ranks = json.loads(run.stdout.splitlines()[-1])
    assert [len(repeats) for repeats in ranks] == [REPEATS] * worlds * RANKS
    assert {digest for repeats in ranks for digest, _ in repeats} == {ranks[0][0][0]}
    assert all(replicas_equal for repeats in ranks for _, replicas_equal in repeats)
