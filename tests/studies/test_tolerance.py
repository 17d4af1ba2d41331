"""Bounds on float noise: what was measured stays inside, what a fault does is outside, small figures make sense."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.studies.tables import Column
from hpcnn.studies.tolerance import (
    FIRST_STEP,
    JUMP,
    TOGETHER,
    allowed_accuracy,
    allowed_disagreement,
    allowed_loss,
    first_unexplained,
    gradient_deviation,
    loss_deviation,
)

# Largest deviation (of loss or gradient norm) at steps 0, 1, 2, ... over 12 to 30 seeds each: the same run in 1 and 3
# micro-batches (0), and with noise of 4e-6 of each gradient tensor's norm besides (4e-6). Digits of data/train.csv,
# cnn2d_3layer_fullconnected_3layer, dropout on.
MEASURED = {
    "adam 1e-3, batch 50, 0": [2e-7, 1e-6, 2e-6, 2e-6, 2e-6, 2e-5, 8e-6, 5e-5, 2e-4, 2e-4, 2e-4, 2e-3],
    "adam 1e-3, batch 50, 4e-6": [4e-6, 1e-4, 6e-4, 3e-3, 1e-2, 5e-3, 6e-3, 3e-2, 2e-2, 2e-2, 3e-2, 4e-2],
    "adam 5e-4, batch 50, 4e-6": [4e-6, 2e-4, 9e-3, 6e-3, 2e-2, 2e-2, 6e-3, 2e-2, 1e-2, 4e-2, 2e-2, 2e-2],
    "adam 1e-2, batch 50, 0": [2e-7, 1e-5, 4e-5, 2e-3, 1e-3, 6e-3, 5e-2, 8e-2, 7e-2, 3e-2, 2e-1, 1e-1],
    "adam 1e-2, batch 50, 4e-6": [4e-6, 3e-4, 8e-3, 5e-2, 8e-2, 2e-1, 8e-2, 3e-1, 2e-1, 3e-1, 4e-1, 8e-1],
    "sgd .05 Nesterov .9, batch 100, 4e-6": [4e-6, 4e-6, 4e-6, 7e-6, 5e-5, 8e-5, 6e-4, 7e-3, 4e-3, 4e-3, 1e-2, 6e-2],
    "sgd .3 Nesterov .9, batch 50, 4e-6": [4e-6, 4e-6, 4e-6, 2e-5, 2e-5, 2e-3, 8e-3, 4e-2, 3e-2, 5e-2, 1e-1, 1e-1],
    "adam 1e-3, batch 7, 4e-6": [4e-6, 4e-5, 1e-4, 7e-3, 9e-3, 3e-2, 1e-2, 2e-2, 1e-2, 3e-2, 3e-2, 3e-2],
    "sgd .05 Nesterov .9, batch 3, 4e-6": [4e-6, 4e-6, 4e-6, 4e-6, 4e-6, 5e-4, 5e-4, 1e-2, 2e-2, 1e-2, 1e-2, 3e-2],
    "sgd .01 Nesterov .9, batch 1, 4e-6": [4e-6, 4e-6, 4e-6, 4e-6, 4e-6, 4e-6, 4e-6, 4e-6, 7e-5, 1e-4, 3e-4, 2e-4],
    "one pair, sgd .05, batch 100, 0": [5e-8, 2e-5, 4e-6, 3e-4, 2e-3, 3e-3, 2e-3, 3e-2, 9e-2, 2e-2, 3e-1, 1e-1],
}  # fmt: skip
CALM = np.full(12, 2.3)


def column(*values: float) -> Column:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize("name", MEASURED)
def test_the_growth_that_was_measured_of_correct_runs_is_explained(name: str) -> None:
    assert first_unexplained(CALM, np.array(MEASURED[name])) is None


@pytest.mark.parametrize("first", [0.0, 1e-8, FIRST_STEP])
def test_the_first_step_is_explained_up_to_its_bound_and_no_further(first: float) -> None:
    assert first_unexplained(CALM[:1], column(first)) is None
    assert first_unexplained(CALM[:1], column(1.01 * FIRST_STEP)) == 0


@pytest.mark.parametrize(
    ("deviations", "place"),
    [
        # Nesterov's momentum left out of SGD 0.05 moves the second step by 5e-3 or more.
        ([1e-7, 5e-3], 1),
        ([1e-7, 1e-6, 0.3], 2),
        # Rows of another order from a later epoch on: another batch's loss and gradient, 0.3 or more away.
        ([1e-7, 1e-6, 1e-6, 1e-6, 1e-5, 0.3, 0.5], 5),
        ([0.0, 0.0, 0.0, 0.0, math.inf], 4),
    ],
)
def test_a_leap_is_not_explained(deviations: list[float], place: int) -> None:
    assert first_unexplained(CALM[: len(deviations)], np.array(deviations)) == place


def test_once_apart_runs_may_be_anywhere_by_the_step() -> None:
    assert first_unexplained(CALM[:7], column(1e-7, 1e-5, 1e-4, 2 * TOGETHER, JUMP, 3.0, 50.0)) is None


def test_of_a_run_that_blows_up_nothing_is_concluded_but_from_the_first_step() -> None:
    losses = column(2.3, 30.0, 900.0, 1e5)
    assert first_unexplained(losses, column(1e-7, 0.1, 5.0, 1e3)) is None
    assert first_unexplained(losses, column(1e-3, 0.1, 5.0, 1e3)) == 0


def test_without_steps_there_is_nothing_to_explain() -> None:
    assert first_unexplained(column(), column()) is None


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(-1e-7, 1e-7))
def test_relative_noise_of_a_loss_is_never_more_as_a_deviation(loss: float, other: float, noise: float) -> None:
    found = loss_deviation(column(loss, other), column(loss * (1 + noise), other))
    assert found[0] <= abs(noise) * (1 + 1e-6) + 1e-15
    assert found[1] == 0


def test_a_loss_of_nearly_nothing_is_compared_absolutely() -> None:
    # 1e-7 against 3e-7 is rounding of logits of size 1, whatever their ratio.
    assert loss_deviation(column(1e-7), column(3e-7))[0] == pytest.approx(2e-7)
    assert loss_deviation(column(100.0), column(100.1))[0] == pytest.approx(1e-3)


def test_a_gradient_of_nearly_nothing_is_held_against_the_largest() -> None:
    found = gradient_deviation(column(10.0, 1e-6, 0.0), column(10.0, 2e-6, 0.0))
    assert found.tolist() == [0.0, pytest.approx(1e-5), 0.0]
    assert gradient_deviation(column(0.0), column(1.0)).tolist() == [math.inf]
    assert gradient_deviation(column(0.0), column(0.0)).tolist() == [0.0]


def test_what_is_no_number_in_both_runs_is_equal_and_in_one_run_endlessly_far() -> None:
    nan, inf = math.nan, math.inf
    found = loss_deviation(column(nan, nan, inf, 1.0, 1.0), column(nan, inf, inf, nan, inf))
    assert found.tolist() == [0.0, 0.0, 0.0, inf, inf]


def test_runs_that_stay_together_are_held_to_the_habit_alone() -> None:
    assert allowed_loss((2.0, 2.0), 1000, 2.3, True) == pytest.approx(0.02)
    assert allowed_accuracy((0.9, 0.9), 1000, True) == 0.005
    assert allowed_disagreement(1000, (0.5, 0.5), True, True) == 10


def test_one_percent_of_nearly_nothing_and_half_a_point_of_few_rows_are_not_asked() -> None:
    assert allowed_loss((1e-6, 2e-6), 1000, 2.3, True) == pytest.approx(0.0023)
    assert allowed_accuracy((1.0, 1.0), 20, True) == 0.05
    assert [allowed_disagreement(rows, (0.0, 0.0), True, True) for rows in (1, 99, 100, 199, 200)] == [1, 1, 1, 1, 2]


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 10**6), st.booleans())
def test_bounds_are_never_less_than_the_habit_and_grow_no_narrower_apart(
    left: float, right: float, rows: int, together: bool
) -> None:
    accuracy = allowed_accuracy((left, right), rows, together)
    assert accuracy >= 0.005
    assert allowed_accuracy((left, right), rows, False) >= allowed_accuracy((left, right), rows, True)
    assert allowed_loss((left, right), rows, 2.3, together) >= 0.01 * max(left, 0.23)
    allowed = allowed_disagreement(rows, (left, right), True, together)
    assert max(rows // 100, 1) <= allowed <= max(rows, 1)


@given(st.integers(1, 2000), st.data())
def test_predictions_that_each_are_wrong_so_often_never_differ_more_than_is_allowed(
    rows: int, data: st.DataObject
) -> None:
    wrong = [data.draw(st.integers(0, rows)) for _ in range(2)]
    most = min(sum(wrong), rows)  # two that are wrong in other rows each; where both are, they can differ as well
    assert allowed_disagreement(rows, (wrong[0] / rows, wrong[1] / rows), True, False) >= most


@pytest.mark.parametrize(
    ("losses", "rows"),
    [
        # Pairs of correct runs (1, 2 and 4 micro-batches) that ended this far apart: final loss of an epoch's rows.
        ((0.042, 0.0514), 6000),
        ((0.0364, 0.0514), 6000),
        ((0.0562, 0.0954), 1000),
        ((0.105, 0.0849), 1000),
        ((0.253, 0.327), 600),
        ((0.3766, 0.4542), 1000),
        ((1.3159, 1.4437), 1000),
    ],
)
def test_final_losses_that_correct_runs_reached_are_allowed(losses: tuple[float, float], rows: int) -> None:
    assert abs(losses[0] - losses[1]) <= allowed_loss(losses, rows, 2.3, False)


@pytest.mark.parametrize(
    ("accuracies", "rows"), [((0.983, 0.974), 1000), ((0.889, 0.873), 1000), ((0.95, 0.9214), 100), ((0.9, 0.918), 600)]
)
def test_final_accuracies_that_correct_runs_reached_are_allowed(accuracies: tuple[float, float], rows: int) -> None:
    assert abs(accuracies[0] - accuracies[1]) <= allowed_accuracy(accuracies, rows, False)


def test_figures_of_another_training_are_not_allowed() -> None:
    assert allowed_loss((0.05, 0.25), 6000, 2.3, False) < 0.2
    assert allowed_accuracy((0.98, 0.93), 1000, False) < 0.05
    assert allowed_disagreement(1000, (0.02, 0.02), True, False) < 50
    assert allowed_disagreement(1000, (0.02, 0.02), False, False) < 100
