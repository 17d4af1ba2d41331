"""How far apart float noise can take two correct runs, and from where on it cannot be the reason.

Every bound is a derivation or a measurement, and says which. Measured on the digits in data/ with
cnn2d_3layer_fullconnected_3layer, batches of 1 to 1,000, SGD 0.01 to 0.3 with and without Nesterov momentum, Adam 5e-4
to 1e-2: the same run in 1, 2 and 4 micro-batches, and with noise of 4e-6 of its norm added to each gradient tensor, as
another backend would.
"""

from __future__ import annotations

import math

import numpy as np

from hpcnn.studies.tables import Column

FIRST_STEP = 2e-5
"""Bound of the first step's deviation. Rule 2 has each run's gradient within 1e-5, in the norm of each tensor, of the
exact one; by the triangle inequality so is the norm of all tensors together, and two runs are within twice that. The
loss carries a forward pass alone, which is part of the same error. Measured: 2e-7 within a backend, 4e-6 across."""

GROWTH = 100.0
"""What a step can multiply FIRST_STEP by at the start. Adam is worst: its first step is eta * sign(g), and rounding
decides the sign of the smallest components. Measured: 5e-4 after one step, 0.01 after two, where this allows 2e-3 and
0.2. Leaving Nesterov's momentum out of SGD 0.05 moves the second step's loss or gradient norm by 5e-3 to 0.09."""

TOGETHER = 1e-3
"""Deviation up to which two runs count as still together."""

JUMP = 0.25
"""Deviation that float noise does not reach in one step from below TOGETHER. It grows by factors, and leaps where a
row's ReLU or pool changes sides: to 0.028 at most in 57 pairs of runs."""

SIGMAS = 4.0
HABIT_LOSS, HABIT_ACCURACY, HABIT_AGREEMENT = 0.01, 0.005, 0.99
"""The habit of the field: final loss within 1 %, final accuracy within 0.5 points, 99 % of predictions equal."""

NATS = 5.0
"""Loss of a row that is told wrong with confidence. Row losses are nearly all 0 or about this much, so that their
variance is at most NATS times their mean."""


def loss_deviation(baseline: Column, run: Column) -> Column:
    """Relative for losses above 1, absolute below: a row's loss is a difference of logits of size 1 or more, so its
    rounding is absolute when the loss itself is small."""
    return _deviation(baseline, run, np.maximum(np.abs(baseline), 1.0))


def gradient_deviation(baseline: Column, run: Column) -> Column:
    """Relative to the baseline's norm, or to 1 % of its largest: near a minimum, what is left of the gradient is a
    difference of much larger terms."""
    finite = baseline[np.isfinite(baseline)]
    floor = 0.01 * float(finite.max()) if finite.size else 0.0
    return _deviation(baseline, run, np.maximum(np.abs(baseline), floor))


def _deviation(baseline: Column, run: Column, scale: Column) -> Column:
    same = (baseline == run) | (~np.isfinite(baseline) & ~np.isfinite(run))
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(run - baseline) / scale
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def first_unexplained(losses: Column, deviation: Column) -> int | None:
    """Place of the first step whose deviation float noise cannot explain, None where it explains all.

    `losses`: the baseline's. A run whose loss more than doubles is blowing up, and multiplies noise without limit:
    from there on nothing is concluded.
    """
    if not len(deviation):
        return None
    before = np.concatenate([[0.0], np.maximum.accumulate(deviation)[:-1]])
    allowed = np.where(before <= TOGETHER, JUMP, np.inf)
    for place in range(min(3, len(allowed))):
        allowed[place] = FIRST_STEP * GROWTH**place
    with np.errstate(invalid="ignore"):
        calm = np.maximum.accumulate(losses) <= 2 * max(float(losses[0]), 1.0)
    calm[0] = True
    unexplained = calm & (deviation > allowed)
    return int(unexplained.argmax()) if unexplained.any() else None


def allowed_loss(losses: tuple[float, float], rows: int, start: float, together: bool) -> float:
    """How far two mean losses over `rows` rows may be apart; `start`: the loss that training began at.

    Together: the habit, of a tenth of `start` at least, since 1 % of nearly nothing is nothing. Once apart, the two are
    different networks of one kind, judged as on rows drawn apart: SIGMAS standard deviations of a difference of means.
    """
    habit = HABIT_LOSS * max(losses[0], 0.1 * start)
    if together or rows < 1:
        return habit
    return max(habit, SIGMAS * math.sqrt(2 * NATS * max(sum(losses) / 2, 0.0) / rows))


def allowed_accuracy(accuracies: tuple[float, float], rows: int, together: bool) -> float:
    """How far two accuracies (0 to 1) over `rows` rows may be apart: the habit or one row; once apart, the binomial's
    scatter, from a share that no sample of `rows` rows can show to be 0 or 1."""
    habit = max(HABIT_ACCURACY, 1 / max(rows, 1))
    if together or rows < 1:
        return habit
    mean = min(max(sum(accuracies) / 2, 0.0), 1.0)  # an accuracy of more than 1 is a fault that must not hide
    share = (mean * rows + 1) / (rows + 2)
    return max(habit, SIGMAS * math.sqrt(2 * share * (1 - share) / rows))


def allowed_disagreement(rows: int, errors: tuple[float, float], known: bool, together: bool) -> int:
    """How many of `rows` predictions may differ: 1 % or one row; once apart, no more than the errors allow.

    Two predictions differ only where one of them at least is wrong, so the shares of errors add up to a bound. `known`:
    they are of these very rows; else they come from other rows, and their scatter is added.
    """
    habit = max(rows * (100 - round(100 * HABIT_AGREEMENT)) // 100, 1)
    if together:
        return habit
    share = sum(errors) if 0 <= sum(errors) <= 1 else 1.0
    if not known:
        mean = share / 2
        share += SIGMAS * math.sqrt(2 * mean * (1 - mean) / max(rows, 1))
    return max(habit, math.ceil(min(share, 1.0) * rows - 1e-6))
