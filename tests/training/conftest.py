"""Fixtures of the training tests: worlds that stay open, small files of real digits, and a small network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.digits import write_digits
from tests.training.worlds import SHARED, World, Worlds

NETWORK = """
[network]
name = "little"

[[layer]]
type = "convolution"
filters = 4
kernel = 5
stride = 2
padding = "same"

[[layer]]
type = "tanh"

[[layer]]
type = "convolution"
filters = 8
kernel = [3, 3]
groups = 2
padding = 1
bias = 0.01

[[layer]]
type = "relu"

[[layer]]
type = "average_pool"
size = 2

[[layer]]
type = "flatten"

[[layer]]
type = "dropout"
rate = 0.25

[[layer]]
type = "dense"
units = "classes"

[[layer]]
type = "softmax"
"""


@pytest.fixture(scope="session")
def worlds() -> Worlds:
    return SHARED


@pytest.fixture(scope="session")
def world(worlds: Worlds) -> World:
    """One process."""
    return worlds.of(1)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.csv (211 rows), test.csv (61 rows) and little.toml (a network that trains in a moment)."""
    folder = tmp_path_factory.mktemp("files")
    write_digits(folder, 211, name="train.csv")
    write_digits(folder, 61, name="test.csv", source="test")
    (folder / "little.toml").write_text(NETWORK, encoding="utf-8")
    return folder
