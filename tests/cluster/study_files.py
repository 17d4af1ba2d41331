"""Small studies on real digits, and `hpcnn study` on them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.mpi.digits import write_digits
from tests.support.mpi import SETTINGS, RankRun, run_session

ROWS = 96
USUAL = """
repeats = {repeats}
warmup_steps = 1
out = "{out}"
{more}
[run]
train = "{train}"
network = "jobs/small_network.toml"
classes = 10
global_batch = 32
epochs = 2

[backend.simulated]
forward_seconds = {seconds}
"""


def write_study(folder: Path, matrices: str, *, repeats: int = 1, more: str = "", seconds: float = 0.001) -> Path:
    """FOLDER/study.toml, its rows, and FOLDER/out, which it will fill."""
    path = folder / "study.toml"
    rows = write_digits(folder, ROWS)
    text = USUAL.format(out=folder / "out", train=rows, repeats=repeats, more=more, seconds=seconds)
    path.write_text(text + matrices, encoding="utf-8")
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "hpcnn", *map(str, arguments)]


def hpcnn(*arguments: object, timeout: float = 300, **environ: str) -> RankRun:
    return run_session(command(*arguments), timeout=timeout, env={**SETTINGS, **environ})
