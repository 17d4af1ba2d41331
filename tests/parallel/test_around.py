"""What is around a reducer, on real ranks: how much of the sum each rank brought, and the faults of `--inject`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hpcnn.parallel.around import Shares
from hpcnn.parallel.inject import injected_reducer
from hpcnn.parallel.reducers import STATISTICS, make_reducer
from tests.support.pool import on_ranks, results

SIZES = (1000, 70_000)
"""Numbers of the gradients of two segments."""


@dataclass(frozen=True)
class Step:
    """This rank's gradient of both segments, before and after, its statistics after, and what was watched."""

    own: Any
    after: Any
    statistics: list[float]
    watched: tuple[float, float, float | None]
    described: dict[str, Any]


def one_step(comm: Any, fault: str | None, *, posted: bool, rows: list[int], options: Any = None) -> Step:
    """Collective. A step of two segments; a rank without rows brings zeros."""
    inner = make_reducer("mpi", comm, options, world=comm, backend="torch")
    shares = Shares(injected_reducer(fault, inner))
    messages = [shares.allocate(size + STATISTICS) for size in SIZES]
    for step in range(2):  # the first is not watched
        if step == 1:
            shares.watch()
        random = np.random.default_rng([step, comm.rank])
        for message in messages:
            message[:] = random.standard_normal(len(message)) if rows[comm.rank] else 0.0
            message[:100] += rows[comm.rank]
            message[-STATISTICS:] = 1.0
        own = np.concatenate([message[:-STATISTICS] for message in messages])
        shares.begin(rows[comm.rank], sum(rows))
        for segment, message in enumerate(messages):
            (shares.post if posted else shares.reduce)(segment, message)
        if posted:
            for segment in range(len(messages)):
                shares.complete(segment)
    after = np.concatenate([message[:-STATISTICS] for message in messages])
    statistics = [float(number) for message in messages for number in message[-STATISTICS:]]
    found = Step(own, after, statistics, shares.watched(), shares.describe())
    shares.close()
    return found


def step(ranks: int, fault: str | None = None, *, posted: bool = False, rows: list[int] | None = None) -> list[Step]:
    given = rows or list(range(1, ranks + 1))
    return results(on_ranks(ranks, one_step, fault, posted=posted, rows=given))


@pytest.mark.parametrize("posted", [False, True])
@pytest.mark.parametrize("ranks", [2, 3])
def test_shares_are_projections_on_the_sum_and_add_up_to_1(ranks: int, posted: bool) -> None:
    found = step(ranks, posted=posted)
    total = np.sum([one.own for one in found], axis=0, dtype=np.float64)
    for one in found:
        np.testing.assert_allclose(one.after, total, rtol=1e-5, atol=1e-5)
        own, norm, share = one.watched
        assert own == pytest.approx(np.linalg.norm(one.own), rel=1e-5)
        assert norm == pytest.approx(np.linalg.norm(total), rel=1e-5)
        assert share == pytest.approx(float(one.own @ total) / float(total @ total), rel=1e-4, abs=1e-6)
    assert sum(one.watched[2] or 0.0 for one in found) == pytest.approx(1, abs=1e-5)
    assert found[0].described == {"algorithm": "nodes", "nodes": 1}


def test_a_rank_without_rows_has_a_share_of_nothing_and_no_rows_at_all_have_none() -> None:
    assert step(2, rows=[3, 0])[1].watched[::2] == (0.0, 0.0)
    assert step(2, rows=[0, 0])[0].watched == (0.0, 0.0, None)


@pytest.mark.parametrize("posted", [False, True])
def test_a_rank_left_out_is_not_in_the_sum_though_it_brought_its_gradient(posted: bool) -> None:
    found = step(3, "rank-left-out", posted=posted)
    total = np.sum([one.own for one in found[:2]], axis=0, dtype=np.float64)
    for one in found:
        np.testing.assert_allclose(one.after, total, rtol=1e-5, atol=1e-5)
        assert one.statistics == [3.0] * 4
    assert found[2].watched[0] == pytest.approx(np.linalg.norm(found[2].own), rel=1e-5)
    assert sum(one.watched[2] or 0.0 for one in found[:2]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("posted", [False, True])
def test_ranks_that_drift_keep_their_own_gradients_and_share_their_statistics(posted: bool) -> None:
    for one in step(3, "drifting-ranks", posted=posted):
        assert one.after.tobytes() == one.own.tobytes()
        assert one.statistics == [3.0] * 4
        assert one.watched[2] == pytest.approx(1)


def test_without_a_fault_nothing_is_put_around() -> None:
    marker: Any = object()
    assert injected_reducer(None, marker) is marker
    assert injected_reducer("same-rows", marker) is marker
