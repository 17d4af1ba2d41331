"""Fixtures of the MPI tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcnn.network.architecture import Architecture
from hpcnn.network.zoo import find_network
from tests.mpi.digits import FIVE_STEPS, write_digits
from tests.support.disk import mounted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The tables of a run fit, a checkpoint does not."""
    yield from mounted(tmp_path / "small", "400k")


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), FIVE_STEPS)


@pytest.fixture(scope="module")
def architecture() -> Architecture:
    return find_network("cnn2d_3layer_fullconnected_3layer").build((1, 28, 28), 10)
