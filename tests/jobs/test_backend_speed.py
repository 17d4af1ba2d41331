"""The benchmark of the backends works in each of its sections, and its committed figures hold what the project claims.

No time is judged that a test measured: what this machine did in a test says nothing.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.env.classic import require_classic
from tests.support.kept import THEANO
from tests.support.mpi import REPOSITORY, run_session

SCRIPT = REPOSITORY / "jobs" / "benchmarks" / "backend_speed.py"
COMMITTED = REPOSITORY / "results" / "benchmarks" / "backend_speed.json"
CLASSIC = ("keras on theano", "lasagne", "caffe")
BACKENDS = ("torch", "tensorflow", "keras")


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
def test_a_quick_benchmark_leaves_a_table_of_ratios_and_one_of_rates(tmp_path: Path) -> None:
    tiny = ["--quick", "--rounds", "1", "--rows", "64", "--batches", "16", "--threads", "1", "--out"]
    sections = ["--section", "single", "--section", "ranks"]
    run = run_session([sys.executable, str(SCRIPT), *sections, *tiny, str(tmp_path)], timeout=500)
    assert run.returncode == 0, run.stderr
    assert run.left_behind == ()
    results = json.loads((tmp_path / "backend_speed.json").read_text(encoding="utf-8"))
    assert list(results) == ["one process, batch 16", "torch, two ranks, 16 rows each"]
    table = (tmp_path / "backend_speed.md").read_text(encoding="utf-8")
    for name in BACKENDS:
        assert f"| one process, batch 16: hpcnn, {name} over plain {name} |" in table
        assert f"\n| hpcnn, {name} | " in table  # side by side
    assert "| torch, two ranks, 16 rows each: hpcnn over two alone |" in table


@pytest.mark.slow
def test_the_classic_backends_are_timed_in_their_environment(tmp_path: Path) -> None:
    require_classic()
    tiny = ["--quick", "--rounds", "1", "--rows", "32", "--batches", "16", "--threads", "1", "--out", str(tmp_path)]
    run = run_session([sys.executable, str(SCRIPT), "--section", "classic", *tiny], timeout=500, env=THEANO)
    assert run.returncode == 0, run.stderr
    table = (tmp_path / "backend_speed.md").read_text(encoding="utf-8")
    for name in ("lasagne", "caffe"):
        assert f"| {name}, one process, batch 16: hpcnn over plain |" in table


def committed() -> dict[str, Any]:
    results: dict[str, Any] = json.loads(COMMITTED.read_text(encoding="utf-8"))
    return results


def test_the_committed_figures_are_of_every_backend_batch_and_switch() -> None:
    results = committed()
    for batch in (64, 250, 1000):
        ratios = [one for one in results[f"one process, batch {batch}"]["ratios"] if one["target"] is not None]
        assert [ratio["of"] for ratio in ratios] == [f"hpcnn, {name}" for name in BACKENDS]
        assert all(ratio["target"] == 0.95 and len(ratio["rounds"]) >= 5 for ratio in ratios)
    for name in BACKENDS:
        for rows in (64, 250):
            (ratio,) = results[f"{name}, two ranks, {rows} rows each"]["ratios"]
            assert ratio["target"] == 0.95
    for name in CLASSIC:
        for batch in (64, 250):
            section = results[f"{name}, one process, batch {batch}"]
            (ratio,) = section["ratios"]
            assert (ratio["target"], len(ratio["rounds"])) == (0.95, 5)
            assert "theano==1.0.5" in section["settings"]["classic"]
    switches = results["switches, batch 250"]["contestants"]
    assert {"torch, channels_last = false", "tensorflow, jit_compile (XLA)", "keras on jax"} <= set(switches)
    assert all(section["versions"]["keras"] for section in results.values())
