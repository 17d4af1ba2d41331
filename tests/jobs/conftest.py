"""A few rows of the shipped data, for the scripts that train on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpi import REPOSITORY

ROWS = 203


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    with open(REPOSITORY / "data" / "train.csv", encoding="utf-8") as stream:
        path.write_text("".join(next(stream) for _ in range(1 + ROWS)), encoding="utf-8")
    return path
