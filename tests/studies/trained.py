"""Real runs for the tests of studies: small networks on few digits, on MPI ranks that stay (tests/support/pool.py)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcnn.config import RunConfig
from hpcnn.training.run import train
from tests.support.mpi import REPOSITORY
from tests.support.pool import on_ranks, results

NETWORK = """
[network]
name = "small"

[[layer]]
type = "convolution"
filters = 4
kernel = 3
stride = 2

[[layer]]
type = "relu"

[[layer]]
type = "flatten"

[[layer]]
type = "dropout"
rate = 0.25

[[layer]]
type = "dense"
units = 16

[[layer]]
type = "relu"

[[layer]]
type = "dense"
units = "classes"

[[layer]]
type = "softmax"
"""
# 101 rows of which none divides: 8 steps an epoch over 13 logical shards, so that ranks hold unequal shares.
SETTINGS: dict[str, Any] = {
    "epochs": 2, "global_batch": 13, "base_batch": 10, "optimizer": "sgd", "learning_rate": 0.01, "threads": 1,
    "progress": False,
}  # fmt: skip
LIMIT = 300.0
"""Of a call; the first one imports a framework on each rank."""


def write_files(folder: Path, rows: int = 101, test_rows: int = 60) -> dict[str, Any]:
    """Settings of runs on the first digits in data/, whose files are written to `folder`."""
    (folder / "small.toml").write_text(NETWORK, encoding="utf-8")
    for name, count in (("train", rows), ("test", test_rows)):
        with (REPOSITORY / "data" / f"{name}.csv").open(encoding="utf-8") as stream:
            (folder / f"{name}.csv").write_text("".join(next(stream) for _ in range(count + 1)), encoding="utf-8")
    files = {name: str(folder / f"{name}.csv") for name in ("train", "test")}
    return {**SETTINGS, **files, "network": str(folder / "small.toml"), "out": str(folder / "results")}


def trained(ranks: int, settings: Sequence[dict[str, Any]]) -> list[Path]:
    """The folders of runs on so many ranks, one after another."""
    return [Path(folder) for folder in results(on_ranks(ranks, trainings, settings, limit=LIMIT))[0]]


def trainings(comm: Any, settings: Sequence[dict[str, Any]]) -> list[str]:
    """Collective."""
    return [str(train(RunConfig(**one), comm).folder) for one in settings]


def unmark(folder: Path, fault: str) -> None:
    """Take the fault out of every file that compare could read."""
    manifest = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert manifest["config"].pop("inject") == fault
    del manifest["command"]
    (folder / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    (folder / "checkpoint.h5").unlink()
    (folder / "results.log").unlink()
    for path in folder.rglob("*"):
        assert not path.is_file() or fault not in path.read_text(encoding="utf-8"), path
