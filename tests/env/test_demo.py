"""env/demo.sh from end to end, on a small clone with few rows: what a person sees first must work."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_trains_twice_compares_and_ends_with_the_results(tmp_path: Path) -> None:
    for name in ("env", "hpcnn"):
        (tmp_path / name).symlink_to(CLONE / name)
    (tmp_path / "data").mkdir()
    for name in ("train.csv", "test.csv"):
        lines = (CLONE / "data" / name).read_text().splitlines(keepends=True)
        (tmp_path / "data" / name).write_text("".join(lines[:201]))
    (tmp_path / "results/demo-1").mkdir(parents=True)  # an earlier demo's

    demo = ["bash", "env/demo.sh", "--epochs", "2"]
    done = subprocess.run(demo, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "results: results/demo-2 " in done.stdout.splitlines()[-1]
    assert list((tmp_path / "results/demo-1").iterdir()) == []
    for run in ("ranks-4", "one-process"):
        assert (tmp_path / "results/demo-2" / run / "loss.csv").exists()
    verdict = done.stdout.partition("are they the same?")[2]
    assert "VERDICT float noise" in verdict or "VERDICT same" in verdict
    epochs = re.findall(r"^ +2 +[\d.]+ +[\d.]+ +[\d.]+% +[\d.]+%$", verdict, re.MULTILINE)
    assert len(epochs) == 1  # loss and accuracy of both runs, side by side
