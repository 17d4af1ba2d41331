"""The benchmark of two stages works, and so does the plain script that it is held against.

No time is judged that a test measured. That the script's arithmetic is ours: tests/parity/test_plain_torch_pipeline.py.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from hpcnn.network.network_file import get_network
from tests.jobs.test_plain_script import PLAIN, imported_by
from tests.jobs.test_torch_script import free_port
from tests.support.mpi import REPOSITORY, run_ranks, run_session

BENCHMARKS = REPOSITORY / "jobs" / "benchmarks"
SCRIPT = PLAIN / "torch_pipeline_script.py"


@pytest.mark.slow
@pytest.mark.needs("torch")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
def test_a_quick_benchmark_leaves_whole_files(tmp_path: Path) -> None:
    tiny = ["--quick", "--section", "1f1b", "--rounds", "1", "--rows", "64", "--batches", "32", "--out", str(tmp_path)]
    run = run_session([sys.executable, str(BENCHMARKS / "pipeline_speed.py"), *tiny], timeout=500)
    assert run.returncode == 0, run.stderr
    assert run.left_behind == ()
    results = json.loads((tmp_path / "pipeline_speed.json").read_text(encoding="utf-8"))
    assert list(results) == ["1f1b, batch 32 in 4 micro-batches"]
    for section in results.values():
        ratio, _ = section["ratios"]
        assert (ratio["of"], ratio["over"], ratio["target"]) == ("hpcnn", "pipelining", 1.0)
        assert section["versions"]["torch"]
    table = (tmp_path / "pipeline_speed.md").read_text(encoding="utf-8")
    assert "| 1f1b, batch 32 in 4 micro-batches: hpcnn over pipelining |" in table


def test_the_committed_figures_are_of_both_schedules_and_numbers_of_micro_batches_and_reach_their_target() -> None:
    results = json.loads((REPOSITORY / "results" / "benchmarks" / "pipeline_speed.json").read_text(encoding="utf-8"))
    for schedule in ("gpipe", "1f1b"):
        for pieces in (4, 8):
            ratio, _ = results[f"{schedule}, batch 64 in {pieces} micro-batches"]["ratios"]
            assert (ratio["of"], ratio["over"], ratio["target"]) == ("hpcnn", "pipelining", 1.0)
            assert len(ratio["rounds"]) >= 5
            assert ratio["reached"]


def test_both_programs_are_cut_at_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import pipeline_speed
    import programs

    layers = get_network(programs.NETWORK, (1, 28, 28), 10).layers
    assert layers[pipeline_speed.PLACE].name == pipeline_speed.FIRST_LAYER


def test_the_plain_script_imports_nothing_of_ours() -> None:
    imported = imported_by(SCRIPT)
    assert "torch" in imported
    assert "hpcnn" not in imported | imported_by(PLAIN / "torch_script.py") | imported_by(PLAIN / "common.py")


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("schedule", "tuning"), [("gpipe", ["--tuned"]), ("1f1b", [])])
def test_the_plain_script_learns_and_leaves_its_settings_and_times(
    train: Path, tmp_path: Path, schedule: str, tuning: list[str]
) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "found.json"
    rows.write_text("".join(train.read_text(encoding="utf-8").splitlines(keepends=True)[:201]), encoding="utf-8")
    flags = ["--train", str(rows), "--test", str(rows), "--epochs", "3", "--batch", "20", "--threads", "1",
             "--schedule", schedule, "--micro-batches", "4", "--cut", "5", *tuning, "--json", str(out)]  # fmt: skip
    run = run_ranks(2, [str(SCRIPT), *flags], timeout=300, env={"MASTER_PORT": free_port()})
    assert run.returncode == 0, run.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert (found["rows"], found["ranks"], found["threads"]) == (200, 2, 1)
    assert found["epochs"][-1]["loss"] < found["epochs"][0]["loss"]
    assert found["test_accuracy"] > 0.3  # chance is 0.1


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--batch", "50"], "203 rows are no multiple of --batch 50"),
        (["--batch", "29", "--micro-batches", "4"], "or that one none of --micro-batches 4"),
        (["--batch", "29", "--micro-batches", "29", "--cut", "3", "5"], "--cut has 2 numbers for 2 processes"),
    ],
)
def test_what_pipelining_cannot_do_is_refused_in_a_line(train: Path, flags: list[str], words: str) -> None:
    arguments = [str(SCRIPT), "--train", str(train), "--threads", "1", "--cut", "5", *flags]
    run = run_ranks(2, arguments, timeout=120, env={"MASTER_PORT": free_port()})
    assert run.returncode != 0
    assert words in run.stderr
