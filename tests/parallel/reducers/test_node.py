"""Sums in a node's memory, slice by slice, whatever the number of slices and of ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcnn.parallel.reducers.node import BLOCK
from tests.parallel.reducers.sums import contribution, no_shared_memory, node_sums
from tests.support.pool import on_ranks, results


def in_order(ranks: int, size: int, turn: int) -> np.ndarray:
    """Rank after rank, in float32: what the module promises to the bit."""
    total = contribution(0, size, turn)
    for rank in range(1, ranks):
        total = total + contribution(rank, size, turn)
    return total


@settings(max_examples=40)
@given(
    ranks=st.integers(1, 4),
    size=st.one_of(st.integers(1, 200), st.integers(BLOCK - 2, 5 * BLOCK)),
    fewer=st.integers(0, 3),
    between=st.booleans(),
)
def test_every_rank_has_the_sum_in_order_of_ranks(ranks: int, size: int, fewer: int, between: bool) -> None:
    parts = max(1, ranks - fewer)
    found = results(on_ranks(ranks, node_sums, size, parts, 3, between))
    for sums in found:
        for turn, total in enumerate(sums):
            assert total.tobytes() == ((2 if between else 1) * in_order(ranks, size, turn)).tobytes()


def test_too_little_memory_is_said_with_the_way_out() -> None:
    for words in results(on_ranks(2, no_shared_memory, 2**45)):
        assert "give --reducer-option algorithm=flat" in words
        assert "MB of memory in /dev/shm that the ranks of a node share (No space left on device)" in words
