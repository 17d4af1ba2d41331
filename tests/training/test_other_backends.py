"""Change the backend and nothing else: a checkpoint of any backend is every backend's, to predict from and to go on."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.data.dataset import load_dataset
from hpcnn.training.checkpoint import load_checkpoint
from hpcnn.wrappers.registry import open_backend
from tests.parity.numpy_reference import Reference
from tests.training.results import manifest, numbers, table
from tests.training.worlds import World, refusal
from tests.wrappers.backends import EVERY_BACKEND, INSTALLED

LOGITS = 1e-4
"""Relative, in the norm: the issue's bound, ten times what the conformance suite allows a segment."""
LOSS = 1e-5
"""Rule 2's bound of a first step: the same weights, the same rows."""
CURVE = 1e-3
"""Of the steps after it, as tests/mpi/test_training.py says."""

NETWORKS = ("little", "cnn2d_3layer_fullconnected_3layer")
EVERY_NETWORK = pytest.mark.parametrize("network", NETWORKS)
PAIRS = list(permutations(INSTALLED, 2))
EVERY_PAIR = pytest.mark.parametrize(("writer", "reader"), PAIRS)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backends")


def trained(world: World, files: Path, out: Path, network: str, backend: str) -> Path:
    """Folder of one epoch of seven steps, trained once."""
    folder = out / f"{network}-{backend}"
    if not folder.exists():
        world.train(
            "--train", files / "train.csv", "--test", files / "test.csv", "--global-batch", 31, "--epochs", 1,
            "--network", files / "little.toml" if network == "little" else network, "--learning-rate", 5e-4,
            "--backend", backend, "--out", out, "--run-id", folder.name,
        )  # fmt: skip
    return folder


def rows_to_test(files: Path, folder: Path) -> Any:
    """test.csv as the run in `folder` scaled it."""
    rows = load_dataset(files / "test.csv", classes=10)
    return rows.batch(np.arange(rows.rows), load_checkpoint(folder).normalisation)


def logits(folder: Path, backend: str, x: Any) -> Any:
    checkpoint = load_checkpoint(folder)
    segment = checkpoint.architecture.whole
    model = open_backend(backend)(segment, checkpoint.weights, np.zeros_like(checkpoint.weights))
    return model.infer(x)


@EVERY_NETWORK
@EVERY_BACKEND
def test_every_backends_checkpoint_gives_the_same_logits_in_every_backend(
    world: World, files: Path, out: Path, network: str, backend: str
) -> None:
    folder = trained(world, files, out, network, backend)
    x = rows_to_test(files, folder)
    checkpoint = load_checkpoint(folder)
    exact = Reference(checkpoint.architecture, checkpoint.weights).logits(x)
    own = logits(folder, backend, x)
    for reader in dict.fromkeys(name for pair in PAIRS for name in pair):
        found = logits(folder, reader, x)
        assert np.linalg.norm(found - own) <= LOGITS * np.linalg.norm(own), reader
        assert np.linalg.norm(found - exact) <= LOGITS * np.linalg.norm(exact), reader


@EVERY_PAIR
def test_the_command_predicts_in_one_backend_from_another_ones_run(
    world: World, files: Path, out: Path, tmp_path: Path, writer: str, reader: str
) -> None:
    folder = trained(world, files, out, "little", writer)
    found = tmp_path / "found.csv"
    outcome = world.hpcnn("predict", folder, "--data", files / "test.csv", "--out", found, "--backend", reader)
    assert outcome.status == 0, outcome.stderr
    # No two classes of a row are so close that rounding could decide between them.
    largest = np.sort(logits(folder, writer, rows_to_test(files, folder)), axis=1)[:, -2:]
    assert np.min(largest[:, 1] - largest[:, 0]) > 100 * LOSS
    assert table(found) == table(folder / "predictions.csv")


@EVERY_PAIR
def test_training_goes_on_in_another_backend_as_in_its_own(
    world: World, files: Path, out: Path, writer: str, reader: str
) -> None:
    folder = trained(world, files, out, "little", writer)
    own = out / f"{writer}-goes-on"
    if not own.exists():
        world.train("--resume", folder, "--epochs", 2, "--out", out, "--run-id", own.name)
    other = out / f"{writer}-in-{reader}"
    world.train("--resume", folder, "--epochs", 2, "--out", out, "--run-id", other.name, "--backend", reader)
    assert (manifest(own)["config"]["backend"], manifest(other)["config"]["backend"]) == (writer, reader)
    expected, found = numbers(own, "train_loss"), numbers(other, "train_loss")
    assert found[0] == pytest.approx(expected[0], rel=LOSS)
    assert found == pytest.approx(expected, rel=CURVE)
    assert numbers(other, "gradient_norm")[0] == pytest.approx(numbers(own, "gradient_norm")[0], rel=LOSS)


@pytest.mark.needs("torch", "tensorflow")
def test_a_layer_that_a_backend_cannot_express_is_named_with_the_reason_and_who_can(
    world: World, files: Path, tmp_path: Path
) -> None:
    network = tmp_path / "own.toml"
    little = (files / "little.toml").read_text(encoding="utf-8")
    odd = '[[layer]]\ntype = "native"\nname = "odd"\nbackend = "torch"\nbuild = "torch.nn:GELU"\n'
    flatten = '[[layer]]\ntype = "flatten"'
    network.write_text(little.replace(flatten, f"{odd}\n{flatten}"), encoding="utf-8")
    rows = ["--train", files / "train.csv", "--network", network, "--max-steps", 1, "--out", tmp_path / "out"]
    outcome = world.hpcnn("train", "--threads", 1, *rows, "--backend", "tensorflow")
    words = refusal(outcome, tmp_path / "out")
    assert (
        "--backend tensorflow cannot build native 'odd': torch.nn:GELU is torch's own, so --backend torch can" in words
    )
    world.train(*rows, "--backend", "torch")
