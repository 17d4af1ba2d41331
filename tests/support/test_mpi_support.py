"""The helper that all MPI tests stand on: results come back, and a run that hangs leaves no process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.mpi import SETTINGS, end_session, mpirun, run_ranks, run_session, start_session

HANG = """
import signal, sys, time
from mpi4py import MPI
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pid", __import__("os").getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_rank_runs_and_its_output_and_environment_come_through(ranks: int) -> None:
    script = "from mpi4py import MPI; import os; c = MPI.COMM_WORLD; print(c.rank, c.size, os.environ['MINE'])"
    run = run_ranks(ranks, ["-c", script], env={"MINE": "x"})
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.split("\n")[:-1]) == [f"{rank} {ranks} x" for rank in range(ranks)]
    assert run.left_behind == ()


def test_the_exit_status_of_a_rank_comes_through() -> None:
    run = run_ranks(2, ["-c", "from mpi4py import MPI; import sys; sys.exit(3 if MPI.COMM_WORLD.rank else 0)"])
    assert run.returncode == 3


def test_ranks_that_hang_and_ignore_signals_are_ended_with_all_their_processes() -> None:
    for timeout in (3, 10, 60):  # until it leaves both ranks the time to start
        with pytest.raises(TimeoutError) as caught:
            run_ranks(2, ["-c", HANG], timeout=timeout)
        pids = re.findall(r"pid (\d+)", str(caught.value))
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists() and _state(pid) != "Z"]
        if len(pids) == 2:
            break
    assert len(pids) == 2


def test_a_process_left_by_a_command_is_reported_and_ended() -> None:
    run = run_session(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"], grace=0.5)
    left = int(run.stdout)
    assert run.left_behind == (left,)
    assert not Path(f"/proc/{left}").exists() or _state(str(left)) == "Z"


def test_a_killed_mpirun_does_not_stand_in_the_way_of_one_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="own", dir="/tmp") as own:  # others sweep the usual one meanwhile
        monkeypatch.setenv("TMPDIR", own)
        monkeypatch.setattr(tempfile, "tempdir", own)
        killed = start_session(mpirun(1, ["-c", HANG]), SETTINGS, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert killed.stdout is not None
        killed.stdout.readline()
        folder = Path(own, f"ompi.{killed.pid}")
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
        end_session(killed)
        assert folder.exists()
        other = start_session(["sleep", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert not folder.exists()
        finally:
            end_session(other)


def test_the_repository_can_be_imported_from_a_session() -> None:
    assert os.path.basename(run_session(["sh", "-c", "echo $PYTHONPATH"]).stdout.split(os.pathsep)[0].strip())


def _state(pid: str) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
