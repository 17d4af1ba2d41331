"""The benchmark works: turns are interleaved, ratios are those of a round, and a short run leaves whole files.

No time is judged here: what this machine did in a test says nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.mpi import REPOSITORY, run_session

BENCHMARKS = REPOSITORY / "jobs" / "benchmarks"


def loaded(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


contest = loaded("contest")


def clocked(name: str, seconds: list[list[float]], turns: list[str], *commands: tuple[str, ...]) -> Any:
    """A contestant that takes `seconds` whenever it has its turn."""

    def read(folder: Path) -> list[list[float]]:
        turns.append(name)
        return seconds

    return contest.Contestant(name, commands or (("python", "-c", "pass"),), read, 100)


def test_turns_alternate_and_a_ratio_is_that_of_a_round() -> None:
    turns: list[str] = []
    fast, slow = clocked("fast", [[9.0, 1.0, 3.0]], turns), clocked("slow", [[9.0, 4.0]], turns)
    held = contest.hold(contest.Contest("c", {}, (fast, slow), (contest.Ratio("fast", "slow", 1.5),)), 3, {})
    assert turns == ["fast", "slow", "slow", "fast", "fast", "slow"]
    assert [sample["rows_per_second"] for sample in held["contestants"]["fast"]["samples"]] == [50.0] * 3
    assert held["ratios"][0]["rounds"] == [2.0] * 3
    assert held["ratios"][0]["reached"]


def test_rates_of_processes_that_run_together_are_added() -> None:
    together = clocked("together", [[9.0, 1.0], [9.0, 2.0]], [])
    assert contest.run(together, {})["rows_per_second"] == 100 + 50


def test_names_in_commands_stand_for_paths(tmp_path: Path) -> None:
    words = ("python", "-c", "x", "ROWS.csv", "OUT/1", "other")
    assert contest.launched(words, tmp_path, {"ROWS.csv": Path("a.csv")})[3:] == ["a.csv", f"{tmp_path}/1", "other"]


def test_a_program_that_fails_ends_the_benchmark_with_its_words_and_the_others_with_it(tmp_path: Path) -> None:
    waits = ("python", "-c", "import time; time.sleep(600)")
    fails = ("python", "-c", "raise SystemExit('no such rows')")
    with pytest.raises(SystemExit, match="no such rows"):
        contest.run(clocked("both", [], [], fails, waits), {})


def test_median_and_quartiles_of_a_few_values() -> None:
    assert contest.spread([4.0, 1.0, 3.0, 2.0, 5.0]) == {"median": 3.0, "lower_quartile": 2.0, "upper_quartile": 4.0}
    assert contest.spread([7.0]) == {"median": 7.0, "lower_quartile": 7.0, "upper_quartile": 7.0}


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
def test_a_quick_benchmark_of_every_section_leaves_whole_files(tmp_path: Path) -> None:
    tiny = ["--quick", "--rounds", "1", "--rows", "64", "--batches", "16", "--threads", "1", "--out", str(tmp_path)]
    run = run_session([sys.executable, str(BENCHMARKS / "torch_speed.py"), *tiny], timeout=400)
    assert run.returncode == 0, run.stderr
    assert run.left_behind == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["torch_speed.json", "torch_speed.md"]
    results = json.loads((tmp_path / "torch_speed.json").read_text(encoding="utf-8"))
    assert list(results) == [
        "one process, batch 16", "one process, batch 16, tuning", "two ranks, 16 rows each", "start-up",
    ]  # fmt: skip
    for section in results.values():
        assert section["versions"]["torch"]
        assert section["machine"]["processor"]
        assert section["git_commit"]
        for one in section.get("contestants", {}).values():
            assert {len(seconds) for sample in one["samples"] for seconds in sample["epoch_seconds"]} == {2}
            assert str(tmp_path.parent) not in " ".join(one["commands"])
    assert len(results["two ranks, 16 rows each"]["contestants"]["two alone"]["samples"][0]["epoch_seconds"]) == 2
    table = (tmp_path / "torch_speed.md").read_text(encoding="utf-8")
    assert "| two ranks, 16 rows each: hpcnn over DDP, tuned |" in table
    assert "| hpcnn --help |" in table


def test_a_section_that_runs_again_replaces_its_old_results_alone(tmp_path: Path) -> None:
    for rounds in ("1", "2"):
        flags = ["--section", "startup", "--rounds", rounds, "--out", str(tmp_path)]
        run = run_session([sys.executable, str(BENCHMARKS / "torch_speed.py"), *flags])
        assert run.returncode == 0, run.stderr
    results = json.loads((tmp_path / "torch_speed.json").read_text(encoding="utf-8"))
    assert list(results) == ["start-up"]
    assert len(results["start-up"]["seconds"]["import hpcnn"]["samples"]) == 2
