"""Rule 3, property by property, against a deal of cards written as plainly as it reads in the design."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpcnn.data.order import BatchOrder
from hpcnn.data.shards import replica_shards
from hpcnn.errors import ConfigError

FROZEN_VALIDATION = [[3], [7], [8]]
FROZEN_BATCHES = [[2, 5, 10, 0, 4], [9, 1, 6, 11]]
SEEDS = st.integers(0, 2**64 - 1)
FRACTIONS = st.one_of(st.just(0.0), st.sampled_from([0.1, 0.2, 0.29, 0.5, 0.9]), st.floats(0, 0.95))


@st.composite
def orders(draw: st.DrawFn) -> BatchOrder:
    """Any rows, logical shards (more than rows too), batch (larger than all rows too) and validation fraction."""
    rows = draw(st.integers(1, 150))
    settings = (draw(st.integers(1, 40)), draw(st.integers(1, 200)), draw(FRACTIONS), draw(SEEDS))
    assume(floor(Fraction(str(settings[2])) * rows) < rows)
    return BatchOrder(rows, *settings)


def whole_batches(order: BatchOrder, epoch: int) -> list[list[int]]:
    everyone = range(order.logical_shards)
    return [order.rows(epoch, step, everyone).tolist() for step in range(order.steps_per_epoch)]


def naive_deal(hands: list[list[int]], batch: int) -> list[list[int]]:
    """Round j takes the j-th row of each logical shard that still has one; batch t is rows tB to (t + 1)B - 1."""
    deal = [hand[j] for j in range(max(map(len, hands))) for hand in hands if j < len(hand)]
    return [deal[start : start + batch] for start in range(0, len(deal), batch)]


@given(order=orders(), replicas=st.integers(1, 8), epoch=st.integers(0, 5))
def test_every_training_row_comes_exactly_once_an_epoch_across_ranks(
    order: BatchOrder, replicas: int, epoch: int
) -> None:
    seen: list[int] = []
    for replica in range(replicas):
        shards = replica_shards(order.logical_shards, replicas, replica, spare=True)
        for step in range(order.steps_per_epoch):
            rows = order.rows(epoch, step, shards)
            assert all(order.bounds[shards.start] <= row < order.bounds[shards.stop] for row in rows)
            seen += rows.tolist()
    validation = [row for shard in range(order.logical_shards) for row in order.validation_rows(shard).tolist()]
    assert sorted(seen + validation) == list(range(order.rows_in_file))
    assert len(seen) == order.training_rows


@given(order=orders(), epoch=st.integers(0, 5))
def test_every_global_batch_has_exactly_its_size_but_the_last(order: BatchOrder, epoch: int) -> None:
    sizes = [len(batch) for batch in whole_batches(order, epoch)]
    assert sizes[:-1] == [order.global_batch] * (order.steps_per_epoch - 1)
    assert 1 <= sizes[-1] <= order.global_batch
    assert sizes == [order.batch_size(step) for step in range(order.steps_per_epoch)]


@given(order=orders(), replicas=st.integers(1, 8), epoch=st.integers(0, 5))
def test_runs_on_any_number_of_ranks_see_the_same_batches(order: BatchOrder, replicas: int, epoch: int) -> None:
    parts = [replica_shards(order.logical_shards, replicas, replica, spare=True) for replica in range(replicas)]
    for step, batch in enumerate(whole_batches(order, epoch)):
        together = [order.rows(epoch, step, shards).tolist() for shards in parts]
        assert sorted(row for part in together for row in part) == sorted(batch)
        # A rank's rows are in the order of the deal: what is left of the batch without the others' rows.
        assert together == [[row for row in batch if row in set(part)] for part in together]


@given(order=orders(), epoch=st.integers(0, 5))
def test_the_closed_form_equals_the_naive_deal_of_the_shuffled_shards(order: BatchOrder, epoch: int) -> None:
    batches = whole_batches(order, epoch)
    owner = np.searchsorted(order.bounds, np.concatenate([np.array(batch) for batch in batches]), side="right") - 1
    dealt = [row for batch in batches for row in batch]
    hands = [[row for row, shard in zip(dealt, owner, strict=True) if shard == v] for v in range(order.logical_shards)]
    assert [len(hand) for hand in hands] == order.shard_counts.tolist()
    assert batches == naive_deal(hands, order.global_batch)


@given(order=orders(), first=st.integers(0, 40), length=st.integers(0, 40))
def test_counts_computed_equal_counts_dealt(order: BatchOrder, first: int, length: int) -> None:
    start = min(first, order.logical_shards)
    shards = range(start, min(start + length, order.logical_shards))
    for step in range(order.steps_per_epoch):
        assert order.count(step, shards) == len(order.rows(0, step, shards))


@given(order=orders())
def test_validation_rows_lie_in_their_shard_and_their_total_depends_on_rows_and_fraction_alone(
    order: BatchOrder,
) -> None:
    for shard in range(order.logical_shards):
        kept, trained = order.validation_rows(shard), order.shard_training_rows(shard)
        assert not set(kept.tolist()) & set(trained.tolist())
        interval = np.arange(order.bounds[shard], order.bounds[shard + 1])
        np.testing.assert_array_equal(np.sort(np.concatenate([kept, trained])), interval)
        np.testing.assert_array_equal(kept, np.sort(kept))
        assert len(kept) == order.validation_counts[shard]


@given(rows=st.integers(2, 5000), shards=st.integers(1, 64), percent=st.integers(0, 99))
def test_the_validation_total_is_the_written_fraction_of_the_rows_rounded_down(
    rows: int, shards: int, percent: int
) -> None:
    order = BatchOrder(rows, shards, 10, percent / 100, seed=0)
    assert order.validation_counts.sum() == rows * percent // 100
    assert order.training_rows == rows - rows * percent // 100


@given(order=orders())
def test_the_rounds_that_are_listed_are_few_as_shard_counts_differ_by_at_most_two(order: BatchOrder) -> None:
    assert order.shard_counts.max() - order.shard_counts.min() <= 2


@settings(max_examples=30)
@given(seed=SEEDS, epoch=st.integers(0, 100), shards=st.integers(1, 8))
def test_another_epoch_and_another_seed_have_another_order(seed: int, epoch: int, shards: int) -> None:
    # 40 rows in each of at most 8 shards: two equal orders by chance have probability 1 / 40! at most.
    order = BatchOrder(40 * shards, shards, 7, 0.0, seed)
    other = BatchOrder(40 * shards, shards, 7, 0.0, seed ^ 1)
    now = whole_batches(order, epoch)
    assert whole_batches(order, epoch + 1) != now
    assert whole_batches(other, epoch) != now
    assert whole_batches(order, epoch) == now


def test_two_shards_of_an_epoch_are_shuffled_differently_and_batches_mix_all_shards() -> None:
    order = BatchOrder(80, 2, 8, 0.0, seed=3)
    dealt = np.concatenate([order.rows(0, step, range(2)) for step in range(10)])
    assert (dealt[1::2] - 40 != dealt[::2]).any()
    assert all(order.count(step, range(1)) == order.count(step, range(1, 2)) == 4 for step in range(10))


def test_a_validation_set_depends_on_neither_epoch_nor_batch() -> None:
    small, large = BatchOrder(100, 7, 3, 0.2, seed=5), BatchOrder(100, 7, 90, 0.2, seed=5)
    small.rows(4, 0, range(7))
    for shard in range(7):
        np.testing.assert_array_equal(small.validation_rows(shard), large.validation_rows(shard))


def test_the_order_never_changes_between_versions() -> None:
    """Frozen: a change here changes every result that was ever published."""
    order = BatchOrder(12, 3, 5, 0.25, seed=1)
    assert [order.validation_rows(shard).tolist() for shard in range(3)] == FROZEN_VALIDATION
    assert whole_batches(order, 0) == FROZEN_BATCHES


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10, 2, 0, 0.0, 1), "global batch 0.*--global-batch"),
        ((10, 0, 5, 0.0, 1), "logical shards 0.*--logical-shards"),
        ((10, 2, 5, 1.0, 1), "validation fraction 1.0.*--validation-fraction"),
        ((10, 2, 5, -0.1, 1), "validation fraction -0.1"),
        ((10, 2, 5, float("nan"), 1), "validation fraction nan"),
        ((0, 2, 5, 0.0, 1), "of 0 rows leaves none"),
        ((10, 2, 5, 0.0, -1), "seed"),
    ],
)
def test_settings_out_of_range_are_refused_in_one_line(arguments: tuple[int, int, int, float, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        BatchOrder(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("step", [-1, 4])
def test_a_step_outside_the_epoch_is_an_index_error(step: int) -> None:
    with pytest.raises(IndexError, match="of an epoch of 4"):
        BatchOrder(20, 2, 5, 0.0, 1).batch_size(step)
