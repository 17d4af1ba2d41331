"""What is left out of a matrix is in it elsewhere: no value of a parameter goes untried."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.covering import covering

FACTORS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(FACTORS, st.integers(0, 9))
def test_each_value_of_each_parameter_is_chosen_and_of_a_full_product_no_case_too_many(
    factors: list[int], turn: int
) -> None:
    cases = list(itertools.product(*map(range, factors)))
    chosen = [cases[place] for place in covering(cases, turn)]
    for column, count in enumerate(factors):
        assert {case[column] for case in chosen} == set(range(count))
    assert len(chosen) == max(factors)


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2))), st.integers(0, 9))
def test_of_a_matrix_with_gaps_only_cases_that_it_has_are_chosen_each_once(
    cases: set[tuple[int, ...]], turn: int
) -> None:
    given_cases = sorted(cases)
    places = covering(given_cases, turn)
    assert places == sorted(set(places))
    for column in range(3):
        assert {given_cases[place][column] for place in places} == {case[column] for case in given_cases}


def test_others_choose_other_cases() -> None:
    cases = list(itertools.product(range(4), range(3), range(3)))
    chosen = [tuple(covering(cases, turn)) for turn in range(5)]
    assert len(set(chosen)) == 5


@pytest.mark.parametrize("turn", [0, 3])
def test_of_one_parameter_all_are_chosen(turn: int) -> None:
    assert covering([(0,), (1,), (2,)], turn) == [0, 1, 2]
