"""The committed accuracies with rounded sums are near those with exact ones, and their benchmark makes such files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.jobs.benchmark_modules import BENCHMARKS
from tests.support.mpi import REPOSITORY, run_session

COMMITTED = REPOSITORY / "results" / "benchmarks" / "wire_accuracy.json"
ROUNDED = ("mpi, wire=float16", "mpi, wire=bfloat16", "horovod, compression=fp16", "horovod, op=adasum")


def test_rounded_sums_cost_at_most_two_points_in_the_mean_of_three_seeds() -> None:
    found = json.loads(COMMITTED.read_text(encoding="utf-8"))["accuracy"]
    assert found["settings"]["seeds"] == [1, 2, 3]
    assert (found["settings"]["rows"], found["settings"]["test_rows"]) == (6000, 1000)
    exact = sum(found["ways"]["mpi"]["accuracy"]) / 3
    assert exact > 0.9
    assert set(found["ways"]) == {"mpi", *ROUNDED}
    for name in ROUNDED:
        assert sum(found["ways"][name]["accuracy"]) / 3 >= exact - 0.02, name


@pytest.mark.slow
@pytest.mark.needs("torch")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
def test_a_quick_benchmark_leaves_whole_files(tmp_path: Path) -> None:
    tiny = ["--quick", "--rows", "50", "--out", str(tmp_path)]
    run = run_session([sys.executable, str(BENCHMARKS / "wire_accuracy.py"), *tiny], timeout=400)
    assert run.returncode == 0, run.stderr
    assert run.left_behind == ()
    found = json.loads((tmp_path / "wire_accuracy.json").read_text(encoding="utf-8"))["accuracy"]
    assert list(found["ways"])[:3] == ["mpi", "mpi, wire=float16", "mpi, wire=bfloat16"]
    assert all(len(one["accuracy"]) == 1 for one in found["ways"].values())
    assert "\n| mpi, wire=float16 | " in (tmp_path / "wire_accuracy.md").read_text(encoding="utf-8")
