"""The benchmark of operations in Theano leaves such files as are committed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.jobs.benchmark_modules import BENCHMARKS
from tests.support.mpi import run_session

WAYS = ["hpcnn", "Theano's own", "switches"]


@pytest.mark.needs("theano")
def test_a_quick_benchmark_leaves_whole_files(tmp_path: Path) -> None:
    quick = [str(BENCHMARKS / "theano_operations.py"), "--quick", "--out", str(tmp_path)]
    run = run_session([sys.executable, *quick], timeout=400)
    assert run.returncode == 0, run.stderr
    found = json.loads((tmp_path / "theano_operations.json").read_text(encoding="utf-8"))
    assert [list(section["ways"]) for section in found.values()] == [WAYS, WAYS]
    table = (tmp_path / "theano_operations.md").read_text(encoding="utf-8")
    assert "\n| ReLU, Theano's own | " in table
    assert "\n| max pool, switches | " in table
