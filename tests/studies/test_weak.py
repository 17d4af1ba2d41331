"""Weak scaling is refused exactly where a brute-force deal of the rows gives ranks unequal work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.data.order import BatchOrder
from hpcnn.data.shards import logical_shard_bounds
from hpcnn.studies.cells import Cell
from hpcnn.studies.matrix import expand
from hpcnn.studies.study_file import Slurm, Study
from hpcnn.studies.weak import unequal_work


def weak(ranks: list[int], batch: int, rows: int, **run: Any) -> list[Cell]:
    block = {"scaling": ["weak"], "ranks": ranks, "batch_a_rank": [batch], "rows_a_rank": [rows]}
    block |= {name: value for name, value in run.items() if isinstance(value, list)}
    run = {name: value for name, value in run.items() if not isinstance(value, list)}
    return expand(
        Study(
            path=Path("a.toml"), name="a", out=Path("a"), run=run, tables={"backend": {}, "reducer": {}},
            blocks=[block], slurm=Slurm(),
        )
    )  # fmt: skip


def rows_a_rank_and_step(cell: Cell) -> list[list[int]]:
    """From the rows themselves: who holds each row of each batch of an epoch."""
    rows, batch, ranks = cell.settings["rows"], cell.settings["global_batch"], cell.ranks
    shards = cell.settings.get("logical_shards") or min(64, batch, rows)
    order = BatchOrder(rows, shards, batch, cell.settings.get("validation_fraction", 0.0), 1)
    bounds = logical_shard_bounds(rows, shards)
    first_shards = [shards * rank // ranks for rank in range(ranks)]
    found = []
    for step in range(order.steps_per_epoch):
        dealt = order.rows(1, step, range(shards))
        shard = np.searchsorted(bounds, dealt, side="right") - 1
        holder = np.searchsorted(first_shards, shard, side="right") - 1
        found.append(np.bincount(holder, minlength=ranks).tolist())
    return found


@given(
    st.integers(2, 6), st.integers(1, 40), st.integers(1, 6), st.integers(0, 9), st.none() | st.integers(6, 12),
    st.sampled_from([0.0, 0.25]),
)  # fmt: skip
def test_a_cell_is_refused_where_the_deal_gives_unequal_work(
    ranks: int, batch: int, batches: int, rest: int, shards: int | None, fraction: float
) -> None:
    given_settings = {} if shards is None else {"logical_shards": shards}
    cells = weak([1, ranks], batch, batch * batches + rest, validation_fraction=fraction, **given_settings)
    if any((cell.settings.get("logical_shards") or min(64, cell.settings["global_batch"])) < ranks for cell in cells):
        return  # which `hpcnn train` refuses
    one, many = (rows_a_rank_and_step(cell) for cell in cells)
    equal = many == [[rows] * ranks for (rows,) in one]
    assert (unequal_work(cells) == {}) == equal


def test_the_reason_tells_the_step_and_the_remedy_works() -> None:
    cells = weak([1, 2, 3], 50, 500)
    reasons = unequal_work(cells)
    assert set(reasons) == {cell.group for cell in cells if cell.ranks > 1}
    assert all(
        reason.startswith("unequal work in weak scaling: step 0 gives one rank ")
        and reason.endswith("give logical_shards = 6, batch_a_rank and rows_a_rank multiples of it")
        for reason in reasons.values()
    )
    assert unequal_work(weak([1, 2, 3], 54, 540, logical_shards=6)) == {}


def test_lines_of_another_batch_or_backend_are_not_held_against_each_other() -> None:
    cells = [*weak([1, 2], 32, 320), *weak([1, 2], 64, 640, backend=["caffe", "torch"])]
    assert unequal_work(cells) == {}


def test_stages_that_grow_are_no_weak_scaling_and_replicas_of_stages_are() -> None:
    growing = unequal_work(weak([2, 4], 64, 640, strategy="pipeline"))
    (reason,) = growing.values()
    assert "4 ranks hold 4 stages of the network, 2 of them 2" in reason
    cells = [
        cell for ranks in (2, 4) for cell in weak([ranks], 32, 320, strategy="hybrid", grid=f"dp={ranks // 2},pp=2")
    ]
    assert unequal_work(cells) == {}


def test_strong_scaling_is_not_asked(tmp_path: Path) -> None:
    cells = [cell for cell in weak([1, 2, 3], 50, 500)]
    assert (
        unequal_work([Cell(key=c.key, repeat=0, ranks=c.ranks, scaling="strong", settings=c.settings) for c in cells])
        == {}
    )


@pytest.mark.parametrize("shards", [1, 2])
def test_more_ranks_than_shards_are_left_to_train_to_refuse(shards: int) -> None:
    assert unequal_work(weak([1, 4], 8, 64, logical_shards=shards)) == {}
