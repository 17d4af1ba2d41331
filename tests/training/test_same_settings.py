"""A script may give each rank other settings: refused by all of them, with the setting, instead of waiting for ever."""

from __future__ import annotations

from typing import Any

import pytest

from hpcnn.config import RunConfig
from hpcnn.errors import ConfigError
from hpcnn.training.run import train
from tests.support.pool import on_ranks


def train_on_rank(comm: Any, out: str, name: str, values: list[Any]) -> tuple[str, bool]:
    config = RunConfig(train="data/test.csv", out=out, **{name: values[comm.rank]})
    try:
        train(config, comm)
    except ConfigError as error:
        return str(error), error.agreed
    return "", False


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("global_batch", [10, 20, 10]),
        ("optimizer", ["adam", "adam", "sgd"]),
        ("backend_option", [{}, {"intra_op_threads": 2}, {}]),
    ],
)
def test_settings_that_differ_between_ranks_are_named_by_all_of_them(
    name: str, values: list[Any], tmp_path: Any
) -> None:
    other = next(rank for rank, value in enumerate(values) if value != values[0])
    words = f"{name} is {values[0]!r} on rank 0 and {values[other]!r} on rank {other}: give all ranks the same"
    assert on_ranks(3, train_on_rank, str(tmp_path), name, values) == [(words, True)] * 3
    assert not list(tmp_path.iterdir())
