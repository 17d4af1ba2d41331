"""Who waits for whom where ranks meet in groups, or posted their part earlier: exact, on clocks that the test winds."""

from __future__ import annotations

from tests.records.drifting_clocks import seconds_of
from tests.support.pool import on_ranks, results


def test_ranks_wait_for_the_last_of_their_own_group() -> None:
    stage0, stage1 = "replicas of stage 0", "replicas of stage 1"
    script = [
        [(0, "forward", ""), (1, "enter", stage0), (5, "leave", ""), (5, "end", "")],
        [(0, "forward", ""), (2, "enter", stage1), (3, "leave", ""), (6, "enter", stage1), (7, "leave", "")],
        [(0, "forward", ""), (4, "enter", stage0), (5, "leave", ""), (5, "end", "")],
        [(0, "forward", ""), (2, "enter", stage1), (3, "leave", ""), (3.5, "enter", stage1), (7, "leave", "")],
    ]
    found = results(on_ranks(4, seconds_of, script))
    assert [rank["wait"][0] for rank in found] == [3, 0, 0, 2.5]
    assert [rank["communicate"][0] for rank in found] == [1, 2, 1, 2]
    assert [rank["forward"][0] for rank in found] == [1, 5, 4, 2.5]


def test_of_a_reduction_that_was_posted_only_what_is_not_hidden_counts() -> None:
    group = "replicas of stage 0"
    script = [
        [(1, "post", ""), (1, "backward", ""), (6, "enter", group), (7, "leave", "")],
        [(3, "post", ""), (3, "backward", ""), (4, "enter", group), (7, "leave", "")],
        [(1, "post", ""), (1, "backward", ""), (2, "enter", group), (7, "leave", "")],
    ]
    found = results(on_ranks(3, seconds_of, script))
    assert [rank["wait"][0] for rank in found] == [0, 0, 1]
    # From 3, when the last one posted, data may move; rank 0 computes until 6, rank 1 until 4.
    assert [rank["communicate"] for rank in found] == [(1, 3), (3, 1), (4, 0)]


def test_one_rank_alone_waits_for_none() -> None:
    script = [[(0, "forward", ""), (1, "enter", "all"), (3, "leave", ""), (4, "end", "")]]
    (found,) = results(on_ranks(1, seconds_of, script))
    assert (found["wait"][0], found["communicate"][0], found["forward"][0]) == (0, 2, 2)
