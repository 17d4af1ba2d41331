"""Losses of rows are exact, and those of a file are the same bits on any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from hpcnn.data.dataset import load_dataset
from hpcnn.data.normalise import Normalisation
from hpcnn.training.checkpoint import load_checkpoint
from hpcnn.training.evaluate import all_rows, row_losses
from tests.mpi.digits import write_digits
from tests.parity.numpy_reference import Reference
from tests.training.results import manifest, table
from tests.training.worlds import World, Worlds

LARGEST = float(np.finfo(np.float32).max)
UNIT = 2.0**-53


def labels_of(logits: Any) -> Any:
    return np.arange(len(logits)) % logits.shape[1]


@given(
    arrays(
        np.float32,
        array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9),
        elements=st.floats(-LARGEST, LARGEST, width=32) | st.floats(-30, 30, width=32),
    )
)
def test_a_rows_loss_is_its_float64_log_softmax_at_any_size_of_logits(logits: Any) -> None:
    labels = labels_of(logits)
    exact = logits.astype(np.float64)
    expected = np.logaddexp.reduce(exact, axis=1) - exact[np.arange(len(labels)), labels]
    found = row_losses(logits, labels)
    # Ours adds C exponents and then twice more, the witness C times; each addition rounds once, by at most half a unit
    # of numbers no larger than twice the largest logit and log C.
    classes = logits.shape[1]
    bound = 2 * (classes + 4) * UNIT * (2 * np.abs(exact).max(axis=1) + np.log(classes) + 1)
    assert np.all(np.abs(found - expected) <= bound)
    assert np.all(found >= 0)


def test_huge_logits_give_no_overflow_and_no_warning() -> None:
    logits = np.array([[LARGEST, -LARGEST], [-LARGEST, LARGEST], [88.0, -88.0]], np.float32)
    with np.errstate(all="raise", under="ignore"):
        found = row_losses(logits, np.zeros(3, np.int64))
    assert found[0] == 0
    assert found[1] == 2 * LARGEST
    assert 0 <= found[2] < 1e-70


def test_logits_that_are_no_numbers_give_a_loss_that_is_none_in_silence() -> None:
    with np.errstate(all="raise", under="ignore"):
        found = row_losses(np.array([[np.nan, 0], [np.inf, np.inf], [1, 1]], np.float32), np.zeros(3, np.int64))
    assert np.isnan(found).tolist() == [True, True, False]


@pytest.fixture(scope="module")
def trained(world: World, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run of one epoch; beside it many.csv, whose shards have several rows, and few.csv, of two rows."""
    out = tmp_path_factory.mktemp("evaluate")
    write_digits(out, 300, name="many.csv", source="test")
    write_digits(out, 2, name="few.csv", source="test")
    world.train(
        "--train", files / "train.csv", "--network", files / "little.toml", "--epochs", 1, "--global-batch", 31,
        "--normalise", "standard", "--out", out, "--run-id", "trained",
    )  # fmt: skip
    return out / "trained"


def evaluated(worlds: Worlds, trained: Path, test: Path, ranks: int) -> Path:
    """A run that goes on from `trained` for no epoch at all: it only evaluates."""
    name = f"{test.stem}{ranks}"
    folder = trained.parent / name
    if not folder.exists():
        worlds.of(ranks).train("--resume", trained, "--test", test, "--out", trained.parent, "--run-id", name)
    return folder


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", ["many.csv", "few.csv"])
def test_a_test_files_loss_and_classes_are_the_same_bits_on_any_number_of_ranks(
    worlds: Worlds, trained: Path, name: str, ranks: int
) -> None:
    alone, together = (evaluated(worlds, trained, trained.parent / name, size) for size in (1, ranks))
    assert manifest(together)["ranks"] == ranks
    assert manifest(together)["test"] == manifest(alone)["test"]
    assert (together / "predictions.csv").read_bytes() == (alone / "predictions.csv").read_bytes()


def test_a_test_files_figures_are_those_of_float64_numpy_over_every_row_in_order(
    worlds: Worlds, files: Path, trained: Path
) -> None:
    folder = evaluated(worlds, trained, files / "test.csv", 1)
    checkpoint = load_checkpoint(trained)
    data = load_dataset(files / "test.csv")
    assert data.labels is not None
    x = data.batch(np.arange(data.rows), checkpoint.normalisation).astype(np.float64)
    logits = Reference(checkpoint.architecture, checkpoint.weights.astype(np.float64)).logits(x)
    losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(data.rows), data.labels]
    figures = manifest(folder)["test"]
    assert figures["rows"] == data.rows == 61
    # float32's forward differs by some 1e-6 of a logit; rows whose classes are that near would show as other classes.
    assert figures["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    predicted = [int(row["Label"]) for row in table(folder / "predictions.csv")]
    assert predicted == logits.argmax(axis=1).tolist()
    assert figures["accuracy"] == pytest.approx(np.mean(predicted == data.labels), rel=1e-12)


def test_every_row_of_a_file_is_evaluated_once_in_the_files_order(files: Path) -> None:
    data = load_dataset(files / "test.csv", logical_shards=7)
    rows = all_rows(data)
    assert sorted(rows) == list(range(7))
    assert np.concatenate(list(rows.values())).tolist() == list(range(61))
    assert data.batch(rows[3], Normalisation(np.zeros(1, np.float32), np.ones(1, np.float32))).shape[1:] == (1, 28, 28)
