"""Any backend from any backend's checkpoint, also where the two exclude each other from one environment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.training.checkpoint import load_checkpoint
from tests.env.classic import require_classic
from tests.parity.numpy_reference import Reference
from tests.support.mpi import REPOSITORY
from tests.training import logits_driver
from tests.training.results import numbers
from tests.training.worlds import SHARED, World

LOGITS = 1e-4
"""Relative, in the norm: the bound of tests/training/test_other_backends.py."""
LOSS = 1e-5
"""Rule 2's, of a first step."""

pytestmark = [pytest.mark.slow, pytest.mark.needs("torch")]  # starts the other environment: one is enough to ask

WORDS = {
    "torch": ("--backend", "torch"),
    "tensorflow": ("--backend", "tensorflow"),
    "keras": ("--backend", "keras", "--keras-backend", "tensorflow"),
    "keras-theano": ("--backend", "keras", "--keras-backend", "theano"),
    "lasagne": ("--backend", "lasagne"),
    "caffe": ("--backend", "caffe"),
}
"""hpcnn's flags of each backend."""
MODERN, CLASSIC = list(WORDS)[:3], list(WORDS)[3:]
PAIRS = [pair for pair in itertools.permutations(WORDS, 2) if (pair[0] in MODERN) != (pair[1] in MODERN)]


@pytest.fixture(scope="module", autouse=True)
def classic() -> Iterator[World]:
    """One process of the classic environment."""
    require_classic()
    world = World(1, ("bash", "env/with.sh", "caffe", "python"))
    yield world
    world.close()


def world_of(name: str, classic: World) -> World:
    return SHARED.of(1) if name in MODERN else classic


@pytest.fixture(scope="module")
def runs(classic: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of every backend a training of two steps of the small network, from the same weights on the same batches."""
    out = tmp_path_factory.mktemp("runs")
    for name, flags in WORDS.items():
        world_of(name, classic).train(
            "--network", "jobs/small_network.toml", "--train", "data/test.csv", *flags, "--global-batch", 50,
            "--max-steps", 2, "--epochs", 1, "--out", out, "--run-id", name,
        )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def logits(runs: Path, classic: World) -> Any:
    """(writer, reader) -> float32[1000, 10]; each reader reads once."""

    @cache
    def read_by(reader: str) -> Path:
        out = runs / f"by-{reader}"
        out.mkdir()
        _, backend, *rest = WORDS[reader]
        backend += f",backend={rest[1]}" if rest else ""
        writers = [reader, *(writer for writer, other in PAIRS if other == reader)]
        arguments = ("data/test.csv", out, backend, *(runs / writer for writer in writers))
        outcome = world_of(reader, classic).hpcnn("-m", logits_driver.__name__, *arguments)
        assert outcome.status == 0, outcome.stderr
        return out

    return lambda writer, reader: np.load(read_by(reader) / f"{writer}.npy")


@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_logits_of_a_checkpoint_of_the_other_environment(runs: Path, logits: Any, writer: str, reader: str) -> None:
    own, found = logits(writer, writer), logits(writer, reader)
    assert own.shape == found.shape == (1000, 10)
    assert np.linalg.norm(found - own) <= LOGITS * np.linalg.norm(own)


@pytest.mark.parametrize("name", WORDS)
def test_the_first_step_is_the_same_everywhere(runs: Path, name: str) -> None:
    for column in ("train_loss", "gradient_norm"):
        expected, found = (numbers(runs / one, column)[0] for one in ("torch", name))
        assert found == pytest.approx(expected, rel=LOSS), column


@pytest.mark.parametrize("name", CLASSIC)
def test_the_reference_agrees_with_a_classic_backends_own_logits(runs: Path, logits: Any, name: str) -> None:
    from hpcnn.data.dataset import load_dataset

    checkpoint = load_checkpoint(runs / name)
    rows = load_dataset(REPOSITORY / "data" / "test.csv", classes=10)
    exact = Reference(checkpoint.architecture, checkpoint.weights).logits(
        rows.batch(np.arange(rows.rows), checkpoint.normalisation)
    )
    assert np.linalg.norm(logits(name, name) - exact) <= LOGITS * np.linalg.norm(exact)


def test_a_classic_run_goes_on_in_a_modern_backend(runs: Path, classic: World, tmp_path: Path) -> None:
    for name, backend in (("own", "caffe"), ("other", "torch")):
        world_of(backend, classic).train(
            "--resume", runs / "caffe", "--max-steps", 4, "--backend", backend, "--out", tmp_path, "--run-id", name
        )
    own, other = (numbers(tmp_path / name, "train_loss") for name in ("own", "other"))
    assert len(own) == len(other) == 2
    assert other[0] == pytest.approx(own[0], rel=LOSS)
