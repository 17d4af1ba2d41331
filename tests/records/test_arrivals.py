"""How late a rank is in a step: beside the median of its group, at the last reduction of each step."""

from __future__ import annotations

import pytest

from hpcnn.records.arrivals import Arrivals, Lateness


def lateness(mine: list[float], others: list[list[float]], steps: list[int]) -> Lateness:
    arrivals = Arrivals("replicas of stage 1")
    arrivals.add(mine, others, steps)
    return arrivals.lateness()


def test_a_rank_is_held_to_the_median_of_the_others() -> None:
    found = lateness([3.0, 7.0, 11.0], [[1.0, 5.0, 9.0], [2.0, 6.0, 12.0], [9.0, 7.0, 15.0]], [0, 1, 2])
    assert found == ("replicas of stage 1", 3, 2, 1.0)  # by 1, 1 and -1


def test_two_ranks_that_are_late_are_both_behind_two_that_are_not() -> None:
    early, late = [1.0, 2.0], [1.5, 2.5]
    assert lateness(late, [early, early, late], [4, 5])[1:] == (2, 2, 0.5)
    assert lateness(early, [early, late, late], [4, 5])[1:] == (2, 0, -0.5)


def test_of_several_reductions_of_a_step_the_one_that_was_posted_last_counts() -> None:
    # completed in another order than posted
    found = lateness([1.0, 4.0, 6.0, 9.0, 8.0], [[2.0, 3.0, 7.0, 7.5, 8.5]], [0, 0, 1, 1, 1])
    assert found[1:] == (2, 2, 1.0)  # 4 - 3 and 9 - 8.5: the larger of the two in the middle


def test_what_belongs_to_no_step_does_not_count() -> None:
    assert lateness([9.0, 2.0, 9.0], [[0.0, 1.0, 0.0]], [-1, 0, -1])[1:] == (1, 1, 1.0)
    assert lateness([9.0], [[0.0]], [-1])[1:] == (0, 0, 0.0)


def test_one_rank_alone_is_never_late() -> None:
    assert lateness([1.0, 2.0], [], [0, 1])[1:] == (0, 0, 0.0)
    assert Arrivals().lateness() == Lateness()


@pytest.mark.parametrize("calls", [1, 2, 6])
def test_what_is_added_in_pieces_is_the_same_as_at_once(calls: int) -> None:
    whole, pieces = Arrivals(), Arrivals()
    mine, others = [1.0, 5.0, 2.0, 8.0, 3.0, 4.0], [[1.5, 4.0, 2.5, 9.0, 1.0, 4.5]]
    whole.add(mine, others, range(6))
    for call in range(calls):
        own = slice(6 * call // calls, 6 * (call + 1) // calls)
        pieces.add(mine[own], [others[0][own]], range(6)[own])
    assert pieces.lateness() == whole.lateness()
