from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.data.shards import default_logical_shards, logical_shard_bounds, replica_shards
from hpcnn.errors import ConfigError, LaunchError


@given(rows=st.integers(0, 10**9), shards=st.integers(1, 300))
def test_logical_shards_are_contiguous_exhaustive_and_differ_by_at_most_one_row(rows: int, shards: int) -> None:
    bounds = logical_shard_bounds(rows, shards)
    sizes = np.diff(bounds)
    assert bounds.dtype == np.int64
    assert (bounds[0], bounds[-1], len(bounds)) == (0, rows, shards + 1)
    assert sizes.min() >= 0
    assert sizes.max() - sizes.min() <= 1


@given(replicas=st.integers(1, 300), more=st.integers(0, 300))
def test_replicas_own_consecutive_disjoint_exhaustive_shards_with_counts_within_one(replicas: int, more: int) -> None:
    shards = replicas + more
    owned = [replica_shards(shards, replicas, replica) for replica in range(replicas)]
    assert [shard for part in owned for shard in part] == list(range(shards))
    assert max(map(len, owned)) - min(map(len, owned)) <= 1
    assert min(map(len, owned)) >= 1


def test_more_replicas_than_logical_shards_are_refused_with_both_numbers_and_the_remedy() -> None:
    with pytest.raises(LaunchError, match=r"5 replicas for 3 logical shards.*at most 3 ranks.*--logical-shards 5"):
        replica_shards(3, 5, 0)


def test_spare_replicas_may_stay_without_shards_where_that_is_asked_for() -> None:
    owned = [replica_shards(3, 5, replica, spare=True) for replica in range(5)]
    assert sorted(shard for part in owned for shard in part) == [0, 1, 2]


@pytest.mark.parametrize(("rows", "batch", "shards"), [(6000, 50, 50), (6000, 1000, 64), (7, 50, 7), (6000, None, 64)])
def test_the_default_number_of_logical_shards_is_the_least_of_64_batch_and_rows(
    rows: int, batch: int | None, shards: int
) -> None:
    assert default_logical_shards(rows, batch) == shards


@pytest.mark.parametrize("shards", [0, -3])
def test_a_number_of_logical_shards_below_one_is_refused(shards: int) -> None:
    with pytest.raises(ConfigError, match=f"logical shards {shards}: .*--logical-shards"):
        logical_shard_bounds(10, shards)
