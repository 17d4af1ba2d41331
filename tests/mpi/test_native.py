"""The examples of jobs/native, each with a layer that no other framework has, train data-parallel as in one process."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.config import DEFAULT_BACKEND
from hpcnn.training.checkpoint import load_checkpoint
from tests.mpi.test_training import CURVE, STEP_0
from tests.support.mpi import run_ranks
from tests.wrappers.backends import EVERY_BACKEND, KERAS_BACKEND

STEPS = 8


def trained(folder: Path, backend: str, ranks: int) -> Path:
    over = ["--keras-backend", KERAS_BACKEND] if backend == "keras" else []
    network = "keras_theano" if backend == "keras" and KERAS_BACKEND == "theano" else backend
    arguments = [
        "-m", "hpcnn", "train", "--train", "data/test.csv", "--global-batch", "50", "--max-steps", str(STEPS),
        "--optimizer", "sgd", "--learning-rate", "0.05", "--threads", "1", "--no-progress", "--backend", backend,
        *over, "--network", f"jobs/native/{network}.toml", "--out", str(folder), "--run-id", f"np{ranks}",
    ]  # fmt: skip
    run = run_ranks(ranks, arguments, timeout=120)
    assert run.returncode == 0, run.stderr
    return folder / f"np{ranks}"


def column(run: Path, name: str) -> Any:
    with open(run / "loss.csv", encoding="utf-8") as stream:
        return np.array([float(row[name]) for row in csv.DictReader(stream)])


@EVERY_BACKEND
def test_two_ranks_train_a_native_layer_as_one_process_does(backend: str, tmp_path: Path) -> None:
    one, two = (trained(tmp_path, backend, ranks) for ranks in (1, 2))
    layers = json.loads((two / "run.json").read_text(encoding="utf-8"))["network"]["layers"]
    own = [layer for layer in layers if layer["type"] == "native"]
    assert {layer["backend"] for layer in own} == {backend}
    assert any(layer["parameters"] for layer in own)  # complete, so that a checkpoint says what it holds
    for name in ("train_loss", "gradient_norm"):
        left, right = column(one, name), column(two, name)
        assert len(left) == STEPS
        assert abs(left[0] - right[0]) <= STEP_0 * left[0]
        assert np.all(np.abs(left - right) <= CURVE * left)
    left, right = (load_checkpoint(run) for run in (one, two))
    moved = False
    for parameter in left.architecture.parameters:
        if parameter.layer == own[0]["name"] or parameter.layer == own[-1]["name"]:
            start = parameter.constant if parameter.initialiser is None else None
            values = parameter.view(left.weights)
            moved = moved or start is None or bool(np.any(values != np.float32(start)))
            assert np.linalg.norm(values - parameter.view(right.weights)) <= CURVE * np.linalg.norm(values)
    assert moved


@pytest.mark.parametrize("ranks", [2])
def test_a_layer_of_another_framework_is_refused_once(ranks: int, tmp_path: Path) -> None:
    arguments = [
        "-m", "hpcnn", "train", "--train", "data/test.csv", "--network", "jobs/native/tensorflow.toml",
        "--out", str(tmp_path),
    ]  # fmt: skip
    run = run_ranks(ranks, arguments, timeout=60)
    assert run.returncode == 1
    words = f"--backend {DEFAULT_BACKEND} cannot build native 'native1': jobs.native.tensorflow_layers:PReLU is "
    words += "tensorflow's own"
    assert run.stderr.count(words) == 1
    assert not list(tmp_path.iterdir())
