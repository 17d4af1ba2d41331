"""Faults that `hpcnn train --inject` makes on real ranks are named by `hpcnn compare`, which is not told of them: every
mark of them is removed first."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hpcnn.cli import main
from tests.support.mpi import REPOSITORY
from tests.training.worlds import SHARED

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
type = "dense"
units = "classes"

[[layer]]
type = "softmax"
"""
# 101 rows of which none divides: 8 steps an epoch over 13 logical shards, so that ranks hold unequal shares.
SETTINGS = ["--epochs", "2", "--global-batch", "13", "--optimizer", "sgd", "--learning-rate", "0.01", "--no-progress"]
FAULTS = ("sum-without-mean", "mean-twice")
Trained = Callable[[int, str | None], Path]
Compared = Callable[[Path, Path], tuple[int, dict[str, Any]]]


def digits(folder: Path, source: str, rows: int) -> Path:
    with (REPOSITORY / "data" / f"{source}.csv").open(encoding="utf-8") as stream:
        lines = [next(stream) for _ in range(rows + 1)]
    path = folder / f"{source}.csv"
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The folder of a run on so many ranks, with a fault or without, no mark of it left; each is trained once."""
    folder = tmp_path_factory.mktemp("runs")
    network = folder / "small.toml"
    network.write_text(NETWORK, encoding="utf-8")
    train, test = digits(folder, "train", 101), digits(folder, "test", 60)

    @cache
    def run(ranks: int, fault: str | None) -> Path:
        name = f"on{ranks}" + ("" if fault is None else f"_{FAULTS.index(fault)}")
        files = ["--network", str(network), "--train", str(train), "--test", str(test)]
        out = ["--out", str(folder / "results"), "--run-id", name]
        injected = [] if fault is None else ["--inject", fault]
        done = SHARED.of(ranks).hpcnn("train", *files, *out, *SETTINGS, *injected)
        assert done.status == 0, done.stderr
        path = folder / "results" / name
        if fault is not None:
            unmark(path, fault)
        return path

    return run


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


@pytest.fixture
def compared(capsys: pytest.CaptureFixture[str]) -> Compared:
    """Exit status and JSON of `hpcnn compare BASELINE RUN --json`."""

    def compared(baseline: Path, run: Path) -> tuple[int, dict[str, Any]]:
        status = main(["compare", str(baseline), str(run), "--json"])
        (found,) = json.loads(capsys.readouterr().out)["comparisons"]
        return status, found

    return compared


@pytest.mark.parametrize(
    ("ranks", "fault", "start"),
    [
        (2, "sum-without-mean", "mean is missing: gradients are added across 2 ranks"),
        (3, "sum-without-mean", "mean is missing: gradients are added across 3 ranks"),
        (4, "sum-without-mean", "mean is missing: gradients are added across 4 ranks"),
        (3, "mean-twice", "mean is taken twice: gradients added across 3 ranks"),
    ],
)
def test_an_injected_fault_is_named_without_its_mark(
    trained: Trained, compared: Compared, ranks: int, fault: str, start: str
) -> None:
    status, found = compared(trained(1, None), trained(ranks, fault))
    assert (status, found["verdict"]) == (1, "different")
    (cause,) = found["causes"]
    assert cause.startswith(start)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_run_without_a_fault_is_float_noise_or_the_same(trained: Trained, compared: Compared, ranks: int) -> None:
    status, found = compared(trained(1, None), trained(ranks, None))
    assert (status, found["causes"]) == (0, [])
    assert found["verdict"] == ("same" if ranks == 1 else "float noise")
    assert found["figures"]["predictions"]["agreement"] >= 59 / 60


def test_a_right_run_against_a_baseline_with_the_fault_blames_the_baseline(
    trained: Trained, compared: Compared
) -> None:
    _, found = compared(trained(3, "sum-without-mean"), trained(1, None))
    (cause,) = found["causes"]
    assert cause.startswith("mean is missing: gradients are added across 3 ranks")
    assert cause.endswith("in on3_0")
