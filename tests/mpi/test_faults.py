"""One rank fails in the middle of training: the job ends within seconds, says who and why first, leaves nothing."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from hpcnn.records.state import read_state
from tests.mpi.digits import write_digits
from tests.support.mpi import RankRun, run_ranks

SECONDS_TO_END = 30
"""From the fault to the end: mpirun takes a second or two; the rest is for a machine that is busy."""


def train(csv: Path, out: Path) -> list[str]:
    return ["-m", "hpcnn", "train", "--train", str(csv), "--out", str(out), "--run-id", "run", "--threads", "1"]


def run_faulty(tmp_path: Path, kind: str, ranks: int, rank: int, *flags: str, moment: str = "3") -> RankRun:
    csv = write_digits(tmp_path)
    arguments = [*train(csv, tmp_path / "out")[2:], "--global-batch", "31", "--epochs", "200", *flags]
    return run_ranks(ranks, ["-m", "tests.mpi.faulty_rank", kind, str(rank), moment, *arguments], timeout=120)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_rank_that_raises_ends_the_job_and_its_words_come_first(tmp_path: Path, ranks: int) -> None:
    rank = ranks - 1
    run = run_faulty(tmp_path, "raise", ranks, rank)
    assert run.returncode != 0
    assert run.left_behind == ()
    first = run.stderr.splitlines()[0]
    assert first.startswith("hpcnn:")
    assert "RuntimeError: the disk of this node is on fire" in first
    assert f"rank {rank} " in first
    assert run.stderr.count("hpcnn: ") == 1
    state = read_state(tmp_path / "out" / "run")
    assert state.state == "failed"
    assert "on fire" in state.words
    assert state.rank == (None if ranks == 1 else rank)
    failed_at = json.loads((tmp_path / "out" / "run" / "ranks" / f"r{rank}.json").read_text())["time"]
    assert time.time() - failed_at < SECONDS_TO_END


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSEGV"])
def test_a_rank_that_is_killed_ends_the_job_and_counts_as_died(tmp_path: Path, signal: str) -> None:
    run = run_faulty(tmp_path, signal, 3, 1)
    assert run.returncode != 0
    assert run.left_behind == ()
    if signal == "SIGSEGV":  # of a library: where in Python it was called
        assert "Fatal Python error: Segmentation fault" in run.stderr
        assert "in fail\n" in run.stderr
    folder = tmp_path / "out" / "run"
    # The files say running; whoever reads them once the beats are old sees who has no last words, and where it was.
    state = read_state(folder, now=time.time() + 60)
    assert state.state in ("died", "stopped")  # as the launcher kills the others, or stops them
    assert "last seen: rank 1 on" in state.words
    assert "step" in state.words
    # rank 0 may be killed with it as it writes: what it had not finished has a name that nobody reads
    assert all(path.name.startswith(".") for path in folder.glob("*.tmp"))


def test_a_loss_that_is_no_number_ends_all_ranks_with_one_line(tmp_path: Path) -> None:
    csv = write_digits(tmp_path)
    run = run_ranks(
        3,
        [*train(csv, tmp_path / "out"), "--optimizer", "sgd", "--learning-rate", "1e6", "--epochs", "20"],
        timeout=120,
    )
    assert run.returncode != 0
    said = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert len(said) == 1
    found = "the loss is|made weights that are no numbers"  # whichever the backend's rounding comes to first
    assert re.search(found, said[0])
    assert "--learning-rate" in said[0]
    assert "Traceback" not in run.stderr
    state = read_state(tmp_path / "out" / "run")
    assert state.state == "failed"
    assert re.search(found, state.words)


@pytest.mark.parametrize("ranks", [1, 2])
def test_weights_that_the_last_update_made_no_numbers_are_no_completed_run(tmp_path: Path, ranks: int) -> None:
    csv = write_digits(tmp_path)
    flags = ["--learning-rate", "1e30", "--optimizer", "sgd", "--max-steps", "1", "--test", str(csv)]
    run = run_ranks(ranks, [*train(csv, tmp_path / "out"), *flags], timeout=120)
    assert run.returncode != 0
    said = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert len(said) == 1
    assert "--learning-rate" in said[0]
    assert read_state(tmp_path / "out" / "run").state == "failed"


def test_a_full_disk_ends_the_run_with_one_line_and_no_half_file(tmp_path: Path, small_disk: Path) -> None:
    csv = write_digits(tmp_path)
    run = run_ranks(
        2,
        [*train(csv, small_disk), "--epochs", "1"],
        timeout=120,
    )
    assert run.returncode != 0
    assert run.left_behind == ()
    first = run.stderr.splitlines()[0]
    assert "cannot be written" in first
    assert "Traceback" not in run.stderr
    assert not (small_disk / "run" / "checkpoint.h5").exists()
    assert list((small_disk / "run").glob(".*.tmp")) == []
