"""A study really run, really killed, and taken up again: no finished cell runs twice, and all end as they would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcnn.studies.cells import Cell, read_cells
from tests.cluster.study_files import command, hpcnn, write_study
from tests.support.mpi import SETTINGS, end_session, start_session

pytestmark = pytest.mark.needs("torch")

MATRIX = """
[[matrix]]
scaling = "strong"
backend = "simulated"
reducer = ["mpi", "plain"]
ranks = [1, 2]
"""
CELLS = 8
OVERSUBSCRIBED = "oversubscribe = true"
LIMIT = 120.0


Killed = tuple[Path, Path, list[dict[str, tuple[int, int]]]]


class Started:
    """`hpcnn study run` in a session of its own."""

    def __init__(self, study: Path) -> None:
        self.process = start_session(
            command("study", "run", study), SETTINGS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def kill_when(self, reached: Callable[[], bool]) -> None:
        """SIGKILL to it alone, as a machine's memory guard does; what it started has to end by itself."""
        deadline = time.monotonic() + LIMIT
        while not reached():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


def trainings(folder: Path) -> set[int]:
    """Living processes that a study in this folder started."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words and b"train" in words and entry.name != str(os.getpid()):
            found.add(int(entry.name))
    return found


def marks(out: Path) -> dict[str, tuple[int, int]]:
    """Of each run that completed: its run.json as a file, which a second run would not leave as it was."""
    found = {}
    for record in out.glob("runs/*/*/run.json"):
        if json.loads(record.read_text())["state"] == "completed":
            status = record.stat()
            found[str(record.relative_to(out))] = (status.st_ino, status.st_mtime_ns)
    return found


def some_run(out: Path, word: str, state: str) -> Callable[[], bool]:
    return lambda: any(
        json.loads(record.read_text()).get("state") == state for record in out.glob(f"runs/*{word}*/*/run.json")
    )


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A study, its folder, and what was finished at each kill: before anything trained, between the end of a run and
    its record, and while two ranks trained."""
    folder = tmp_path_factory.mktemp("killed")
    study = write_study(folder, MATRIX, repeats=2, more=OVERSUBSCRIBED, seconds=0.01)
    out, finished = folder / "out", []
    moments = (
        lambda: any(b"running" in path.read_bytes() for path in out.glob("runs/*/cell.json")),
        some_run(out, "simulated_data_mpi_np1", "completed"),
        some_run(out, "simulated_data_plain_np2", "running"),
    )
    for moment in moments:
        started = Started(study)
        try:
            started.kill_when(moment)
            deadline = time.monotonic() + LIMIT
            while (left := trainings(folder)) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert left == set()
        finally:
            end_session(started.process)
        finished.append(marks(out))
    run = hpcnn("study", "run", study)
    assert run.returncode == 0, run.stdout + run.stderr
    return study, out, finished


def test_a_killed_study_ends_with_all_cells_done_each_by_one_run(killed) -> None:
    _, out, _ = killed
    cells = read_cells(out)
    assert [cell.repeat for cell in cells] == [0] * 4 + [1] * 4
    assert [cell.ranks for cell in cells] == [1, 2, 1, 2] * 2
    assert {cell.state for cell in cells} == {"done"}
    completed = marks(out)
    assert sorted(f"{cell.run}/run.json" for cell in cells) == sorted(completed)


def test_no_finished_cell_runs_again(killed) -> None:
    study, out, finished = killed
    assert [len(found) for found in finished[:2]] == [0, 1]
    assert len(finished[2]) >= 3  # or 4, where the two ranks were done before they were ended
    for found in finished:
        assert found.items() <= marks(out).items()
    before = marks(out)
    run = hpcnn("study", "run", study)
    assert (run.returncode, marks(out)) == (0, before)
    assert f"{CELLS} cells, {CELLS} done before" in run.stdout


def test_cells_that_were_interrupted_train_what_their_other_repeat_does(killed) -> None:
    _, out, _ = killed
    losses: dict[str, set[tuple[str, ...]]] = {}
    for cell in read_cells(out):
        lines = (out / str(cell.run) / "loss.csv").read_text().splitlines()
        losses.setdefault(cell.group, set()).add(tuple(line.partition(",")[2] for line in lines[1:]))
    assert len(losses) == 4
    assert all(len(some) == 1 and len(next(iter(some))) == 6 for some in losses.values())


def test_each_run_is_what_its_cell_says(killed) -> None:
    study, out, _ = killed
    for cell in read_cells(out):
        facts = json.loads((out / str(cell.run) / "run.json").read_text())
        assert facts["ranks"] == cell.ranks
        assert {
            name: facts["config"][name] for name in ("backend", "strategy", "reducer", "global_batch", "threads")
        } == {name: cell.settings[name] for name in ("backend", "strategy", "reducer", "global_batch", "threads")}
        assert facts["config"]["settle_steps"] == 1
        assert facts["threads"]["per_rank"] == [1] * cell.ranks
        assert not (out / str(cell.run) / "checkpoint.h5").exists()
    assert (out / "study.toml").read_text() == study.read_text()


def test_a_study_that_grew_goes_on_and_one_that_changed_is_refused(killed) -> None:
    study, out, _ = killed
    text, before = study.read_text(), marks(out)
    try:
        study.write_text(text.replace("epochs = 2", "epochs = 3"))
        run = hpcnn("study", "run", study)
        assert (run.returncode, run.stdout) == (2, "")
        assert f"{CELLS} finished cells of" in run.stderr
        assert "are not in this file: it may be extended, not changed" in run.stderr
        study.write_text(text + '\n[[matrix]]\nbackend = "simulated"\nepochs = 1\n')
        run = hpcnn("study", "run", study)
        assert run.returncode == 0, run.stderr
        assert f"{CELLS + 2} cells, {CELLS} done before" in run.stdout
        assert before.items() <= marks(out).items()
        assert len(marks(out)) == len(read_cells(out)) == CELLS + 2
    finally:
        study.write_text(text)


REFUSED = """
[[matrix]]
backend = "simulated"
ranks = [1, 999]
[[matrix]]
backend = "simulated"
strategy = "pipeline"
stages = "nonsense"
[[matrix]]
backend = "caffe"
[[matrix]]
backend = "simulated"
strategy = "pipeline"
reducer = "native"
[[matrix]]
scaling = "weak"
backend = "simulated"
ranks = 3
batch_a_rank = 50
rows_a_rank = 100
[[matrix]]
backend = "torch"
learning_rate = 1e30
rows = 64
[[matrix]]
backend = "simulated"
rows = 97
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A study of cells that can't run, where no environment of env/ is made: what is installed here runs here."""
    folder = tmp_path_factory.mktemp("mixed")
    study = write_study(folder, REFUSED)
    run = hpcnn("study", "run", study, HPCNN_ENV_ROOT=str(folder / "none"))
    assert run.returncode == 1, run.stdout + run.stderr
    return study, folder / "out", run.stdout


def test_cells_that_cannot_run_are_listed_with_their_reason_and_the_rest_go_on(mixed) -> None:
    _, out, said = mixed
    cells = read_cells(out)
    assert [cell.state for cell in cells] == [
        "done",
        "refused",
        "refused",
        "refused",
        "refused",
        "refused",
        "failed",
        "refused",
    ]
    many, stages, caffe, native, weak, endless, rows = cells[1:]
    assert many.reason.startswith("999 ranks x 1 threads need 999 cores, ")
    assert "oversubscribe = true" in many.reason
    assert stages.reason.startswith("--stages nonsense: ")
    assert caffe.reason.startswith("--backend caffe: the environment 'classic' isn't made yet")
    assert native.reason.startswith("--reducer native")
    assert weak.reason.startswith("unequal work in weak scaling: step 0")
    assert "training cannot go on; try a lower --learning-rate" in endless.reason
    assert rows.reason.endswith("digits.csv: has 96 rows, the study asks for 97: give a larger file or fewer rows")
    for cell in cells[1:]:
        assert f"{cell.state}: {cell.reason}" in said
    assert said.splitlines()[-1].startswith("study study: 1 done, 1 failed, 6 refused; ")


def test_the_status_tells_states_and_each_reason_once(mixed) -> None:
    study, out, _ = mixed
    run = hpcnn("study", "status", study)
    assert run.returncode == 0
    assert run.stdout.startswith(f"8 cells: 1 done, 1 failed, 6 refused; folder {out}\n")
    assert "  simulated data forward_seconds=0.001, 1 rank, batch 32" in run.stdout
    for cell in read_cells(out):
        assert run.stdout.count(cell.reason) == 1 or not cell.reason
    assert hpcnn("study", "status", out).stdout == run.stdout


def test_a_study_runs_once_at_a_time(tmp_path: Path) -> None:
    study = write_study(tmp_path, '[matrix]\nbackend = "simulated"\n', seconds=60.0)
    started = Started(study)
    try:
        deadline = time.monotonic() + LIMIT
        while not (begun := list((tmp_path / "out").glob("runs/*/cell.json"))) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert begun
        run = hpcnn("study", "run", study)
        assert run.returncode == 1
        assert "another process runs cells of it: wait for its end" in run.stderr
        started.process.send_signal(signal.SIGTERM)
        said, _ = started.process.communicate(timeout=60)
        assert started.process.returncode == 128 + signal.SIGTERM
        assert "hpcnn: stopped by SIGTERM" in said
    finally:
        end_session(started.process)
    (cell,) = read_cells(tmp_path / "out")
    assert (cell.state, cell.reason) == ("waiting", "stopped by SIGTERM")
    assert trainings(tmp_path) == set()


def test_a_run_that_takes_too_long_is_ended_and_says_so(tmp_path: Path) -> None:
    study = write_study(tmp_path, '[matrix]\nbackend = "simulated"\n', seconds=60.0, more="minutes = 0.05")
    run = hpcnn("study", "run", study)
    assert run.returncode == 1
    cell: Cell = read_cells(tmp_path / "out")[0]
    assert (cell.state, cell.reason) == (
        "failed", "ended after 0.05 minutes: raise minutes in the study, or make its runs shorter",
    )  # fmt: skip
    assert trainings(tmp_path) == set()
