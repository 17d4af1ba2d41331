"""What readers learn of ranks that were killed, stopped, failed or are well: real processes, real signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcnn.records.heartbeat import Heartbeat
from hpcnn.records.state import STALE_BEATS, RunState, read_state
from tests.support.mpi import REPOSITORY

INTERVAL = 0.25  # a rank that gets no core, or a disk that is busy, for five of these would look dead
RANK = f"""
import sys, time
from pathlib import Path
from hpcnn.records.heartbeat import Heartbeat
heart = Heartbeat(Path(sys.argv[1]), int(sys.argv[2]), interval={INTERVAL})
heart.start()
heart.doing("backward", 2, 17)
for line in sys.stdin:
    if line.startswith("fail"):
        heart.end("failed", "ValueError: the words")
        heart.end("completed")
        sys.exit(1)
    if line.startswith("complete"):
        heart.end("completed")
        print("completed", flush=True)
"""
Rank = Callable[[int], subprocess.Popen[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "run.json").write_text('{"state": "running"}')
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Rank]:
    """Starts a rank that beats; all are ended with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(rank: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", RANK, str(folder), str(rank)],
            cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def until(folder: Path, wanted: str, seconds: float = 20) -> RunState:
    """The state once it is `wanted`; fails with the last one where that takes too long."""
    limit = time.monotonic() + seconds
    while (state := read_state(folder)).state != wanted and time.monotonic() < limit:
        time.sleep(0.02)
    assert state.state == wanted, state
    return state


def until_it_works(folder: Path, ranks: int) -> None:
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        beats = [json.loads(path.read_text()) for path in (folder / "ranks").glob("r*.json")]
        if len(beats) == ranks and all(beat["operation"] == "backward" for beat in beats):
            return
        time.sleep(0.02)
    pytest.fail(f"{ranks} ranks did not come to life")


def test_a_rank_that_is_killed_is_shown_as_died_and_where(folder: Path, start: Rank) -> None:
    start(0)
    victim = start(1)
    until_it_works(folder, 2)
    until(folder, "running")
    victim.kill()
    killed = time.time()
    state = until(folder, "died")
    assert time.time() - killed > (STALE_BEATS - 1) * INTERVAL  # not before beats were missed
    assert state.rank == 1
    assert state.words.startswith("last seen: rank 1 on ")
    assert state.words.endswith(", backward, epoch 2, step 17")


def test_a_rank_that_is_stopped_is_shown_as_died_until_it_goes_on(folder: Path, start: Rank) -> None:
    start(0)
    victim = start(1)
    until_it_works(folder, 2)
    victim.send_signal(signal.SIGSTOP)
    assert until(folder, "died").rank == 1
    victim.send_signal(signal.SIGCONT)
    until(folder, "running")


def test_the_first_of_several_dead_ranks_is_named(folder: Path, start: Rank) -> None:
    ranks = [start(rank) for rank in range(3)]
    until_it_works(folder, 3)
    ranks[2].kill()
    until(folder, "died")
    for rank in ranks[:2]:
        rank.kill()
    time.sleep((STALE_BEATS + 1) * INTERVAL)
    assert read_state(folder).rank == 2


def test_the_words_of_a_rank_that_failed_are_kept_though_all_are_dead_since(folder: Path, start: Rank) -> None:
    start(0).kill()
    failing = start(3)
    until_it_works(folder, 1)
    say(failing, "fail")
    state = until(folder, "failed")
    assert failing.wait(timeout=20) == 1
    time.sleep((STALE_BEATS + 1) * INTERVAL)
    state = read_state(folder)
    assert (state.state, state.rank) == ("failed", 3)
    assert state.words.endswith("backward, epoch 2, step 17: ValueError: the words")


def test_a_rank_that_has_completed_is_not_dead_while_another_still_works(folder: Path, start: Rank) -> None:
    start(0)
    done = start(1)
    until_it_works(folder, 2)
    say(done, "complete")
    assert done.stdout is not None
    assert done.stdout.readline() == "completed\n"
    time.sleep((STALE_BEATS + 2) * INTERVAL)
    until(folder, "running")


def test_the_beat_tells_since_when_the_same_operation_runs(folder: Path, start: Rank) -> None:
    start(0)
    until_it_works(folder, 1)
    path = folder / "ranks" / "r0.json"
    first = json.loads(path.read_text())
    limit = time.monotonic() + 20
    while (second := json.loads(path.read_text()))["time"] == first["time"] and time.monotonic() < limit:
        time.sleep(0.02)
    assert second["time"] > first["time"]
    assert second["since"] == first["since"]
    assert (second["rank"], second["interval"], second["state"]) == (0, INTERVAL, "running")


def test_a_beat_that_cannot_be_written_does_not_end_the_training(tmp_path: Path) -> None:
    heart = Heartbeat(tmp_path / "gone", 0, interval=0.01)
    heart.start()
    heart.doing("forward", 1, 1)
    time.sleep(0.1)
    heart.end("completed")
    assert not (tmp_path / "gone").exists()


def test_doing_costs_little_enough_for_every_operation(tmp_path: Path) -> None:
    """It looks at the clock and remembers: no file, no lock, no other code. Measured: 1 us."""
    heart = Heartbeat(tmp_path, 0)
    called: list[str] = []
    sys.setprofile(lambda frame, event, argument: called.append(getattr(argument, "__name__", frame.f_code.co_name)))
    try:
        heart.doing("forward", 1, 1)
    finally:
        sys.setprofile(None)
    assert set(called) <= {"doing", "time", "update", "setprofile"}
    assert not list(tmp_path.iterdir())
