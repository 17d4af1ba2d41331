"""One stage fails in the middle of a schedule: the job ends within seconds and says who, in which operation.

The other stages wait for its messages, maybe through stages between: none may wait for ever."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hpcnn.records.state import read_state
from tests.mpi.test_faults import SECONDS_TO_END, run_faulty
from tests.support.mpi import RankRun


def run_faulty_stage(tmp_path: Path, kind: str, rank: int, operation: str, grid: str, *flags: str) -> RankRun:
    ranks = 4 if grid != "dp=1,pp=3" else 3
    strategy = "pipeline" if grid.startswith("dp=1,") else "hybrid"
    layout = ["--strategy", strategy, "--grid", grid, "--micro-batches", "4", *flags]
    return run_faulty(tmp_path, kind, ranks, rank, *layout, moment=f"2@{operation}")


@pytest.mark.parametrize(
    ("grid", "schedule", "rank", "stage", "operation", "words"),
    [
        ("dp=1,pp=3", "1f1b", 1, 1, "B1.2", "backward of segment 1, micro-batch 2"),
        ("dp=1,pp=3", "zero-bubble", 0, 0, "W0.1", "backward weights of segment 0, micro-batch 1"),
        ("dp=1,pp=3", "interleaved", 2, 2, "L5.3", "loss of segment 5, micro-batch 3"),
        ("dp=2,pp=2", "1f1b", 2, 0, "S0.3", "send of segment 0, micro-batch 3"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_stage_that_raises_ends_the_job_and_names_its_operation(
    tmp_path: Path, grid: str, schedule: str, rank: int, stage: int, operation: str, words: str
) -> None:
    flags = ["--schedule", schedule, *(["--chunks", "2"] if schedule == "interleaved" else [])]
    run = run_faulty_stage(tmp_path, "raise", rank, operation, grid, *flags)
    assert run.returncode != 0
    assert run.left_behind == ()
    first = run.stderr.splitlines()[0]
    assert first.startswith("hpcnn:")
    assert f"rank {rank} " in first
    assert f"stage {stage}, {operation} ({words})" in first
    assert "RuntimeError: the disk of this node is on fire" in first
    assert run.stderr.count("hpcnn: ") == 1  # stages that wait are told to stop, and say nothing
    state = read_state(tmp_path / "out" / "run")
    assert (state.state, state.rank) == ("failed", rank)
    assert f"stage {stage}, {operation} ({words}), epoch 1, step 2: RuntimeError" in state.words
    failed_at = json.loads((tmp_path / "out" / "run" / "ranks" / f"r{rank}.json").read_text())["time"]
    assert time.time() - failed_at < SECONDS_TO_END


@pytest.mark.parametrize(("rank", "operation"), [(0, "F0.3"), (1, "B1.1")])
def test_a_stage_that_is_killed_ends_the_job_and_its_last_beat_tells(tmp_path: Path, rank: int, operation: str) -> None:
    run = run_faulty_stage(tmp_path, "SIGKILL", rank, operation, "dp=1,pp=3")
    assert run.returncode != 0
    assert run.left_behind == ()
    folder = tmp_path / "out" / "run"
    beats = [json.loads((folder / "ranks" / f"r{number}.json").read_text()) for number in range(3)]
    assert time.time() - beats[rank]["time"] < SECONDS_TO_END
    assert beats[rank]["state"] == "running"
    assert f"step, stage {rank}, {operation} (" in beats[rank]["operation"]
    state = read_state(folder, now=time.time() + 60)
    assert state.state in ("died", "stopped")  # as the launcher kills the others, or stops them
    seen = state.words.partition("last seen: ")[2]
    assert seen.startswith(f"rank {rank} on ")
    assert f"step, stage {rank}, {operation} (" in seen
