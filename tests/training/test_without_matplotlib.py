"""A traced run where matplotlib is not installed: everything but the picture, and a line that says so."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.mpi.digits import write_digits
from tests.support.mpi import run_session


def test_the_picture_is_left_out_in_a_line_and_the_trace_is_there(tmp_path: Path) -> None:
    csv = write_digits(tmp_path, 40)
    command = [sys.executable, "-m", "tests.support.without", "matplotlib", "train", "--train", str(csv), "--trace"]
    settings = ["--epochs", "1", "--global-batch", "20", "--threads", "1", "--out", str(tmp_path), "--run-id", "run"]
    done = run_session([*command, *settings])
    assert done.returncode == 0, done.stderr
    said = "timeline.png was left out: matplotlib is not installed; pip install matplotlib"
    assert said in done.stdout.splitlines()
    assert (tmp_path / "run/trace.json").exists()
    assert not (tmp_path / "run/timeline.png").exists()
