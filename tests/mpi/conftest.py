"""Fixtures of the MPI tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disk import mounted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The tables of a run fit, a checkpoint does not."""
    yield from mounted(tmp_path / "small", "400k")
