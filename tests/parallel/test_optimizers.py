"""The float32 updates against the same formulas in float64, and against torch.optim where its formulas coincide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpcnn.parallel.optimizers import BLOCK, SGD, Adam, Optimizer
from tests.parity import numpy_optimizers

Array = Any
SIZES = (1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5)
STEPS = 12

NOISE = 1e-5
"""Of a change's norm. A step rounds a number some six times, and momentum keeps ten steps' errors:
sqrt(12 x 6) x 10 x 2**-24 = 5e-6. Rounding the weights, of size 1, adds sqrt(12) x 0.3 x 2**-24 = 6e-8 to changes that
are at least 12 x 0.035 x 0.06 = 0.025 in these tests: 2.5e-6."""

SCHEDULE = [0.05 / (1 + 0.1 * step) for step in range(STEPS)]  # decay 0.1

PAIRS: dict[str, tuple[Any, Any]] = {
    "sgd": (lambda n: SGD(n), lambda eta: numpy_optimizers.SGD(eta, decay=0.1)),
    "momentum": (lambda n: SGD(n, momentum=0.9), lambda eta: numpy_optimizers.SGD(eta, momentum=0.9, decay=0.1)),
    "nesterov": (
        lambda n: SGD(n, momentum=0.9, nesterov=True),
        lambda eta: numpy_optimizers.SGD(eta, momentum=0.9, nesterov=True, decay=0.1),
    ),
    "sgd, decoupled": (
        lambda n: SGD(n, momentum=0.9, weight_decay=0.3, decoupled=True),
        lambda eta: numpy_optimizers.SGD(eta, momentum=0.9, decay=0.1, weight_decay=0.3, decoupled=True),
    ),
    "sgd, coupled": (
        lambda n: SGD(n, momentum=0.9, nesterov=True, weight_decay=0.3, decoupled=False),
        lambda eta: numpy_optimizers.SGD(
            eta, momentum=0.9, nesterov=True, decay=0.1, weight_decay=0.3, decoupled=False
        ),
    ),
    "adam": (lambda n: Adam(n), lambda eta: numpy_optimizers.Adam(eta, decay=0.1)),
    "adam, other betas": (
        lambda n: Adam(n, beta1=0.5, beta2=0.75),
        lambda eta: numpy_optimizers.Adam(eta, betas=(0.5, 0.75), decay=0.1),
    ),
    "adam, decoupled": (
        lambda n: Adam(n, weight_decay=0.3, decoupled=True),
        lambda eta: numpy_optimizers.Adam(eta, decay=0.1, weight_decay=0.3, decoupled=True),
    ),
    "adam, coupled": (
        lambda n: Adam(n, weight_decay=0.3, decoupled=False),
        lambda eta: numpy_optimizers.Adam(eta, decay=0.1, weight_decay=0.3, decoupled=False),
    ),
}
EVERY_OPTIMIZER = pytest.mark.parametrize("name", PAIRS)


def start_and_gradients(size: int) -> tuple[Array, list[Array]]:
    """Weights from 1 to 1.5, and gradients of size 0.02 to 1, positive for some numbers and negative for others."""
    generator = np.random.default_rng(size)
    scale = 10 ** generator.uniform(-1, 0, size) * generator.choice([-1, 1], size)
    weights = (1 + 0.5 * generator.random(size)).astype(np.float32)
    return weights, [(scale * generator.uniform(0.2, 1, size)).astype(np.float32) for _ in range(STEPS)]


def assert_same_change(actual: Array, expected: Array, start: Array) -> None:
    change = expected - start.astype(np.float64)
    assert np.linalg.norm(actual.astype(np.float64) - expected) < NOISE * np.linalg.norm(change)


@EVERY_OPTIMIZER
@pytest.mark.parametrize("size", SIZES)
def test_updates_equal_the_formulas_in_float64(name: str, size: int) -> None:
    make, make_reference = PAIRS[name]
    optimizer, reference = make(size), make_reference(SCHEDULE[0])
    start, gradients = start_and_gradients(size)
    weights, exact = start.copy(), start.astype(np.float64)
    for rate, gradient in zip(SCHEDULE, gradients, strict=True):
        optimizer.update(weights, gradient, rate)
        exact = reference.step(exact, gradient)
    assert optimizer.updates == STEPS
    assert_same_change(weights, exact, start)


@EVERY_OPTIMIZER
def test_an_update_does_not_depend_on_where_a_number_stands(name: str) -> None:
    # All numbers alike: one that a block left out, took twice or took from a neighbour would differ.
    size = 2 * BLOCK + 3
    optimizer, weights = PAIRS[name][0](size), np.full(size, 0.7, np.float32)
    for step in range(3):
        optimizer.update(weights, np.full(size, 0.3 - 0.2 * step, np.float32), 0.1)
    assert np.unique(weights).size == 1
    assert weights[0] != np.float32(0.7)
    assert all(np.unique(vector).size == 1 for vector in optimizer.state.values())
    # And it equals the update of a vector of one number, to the bit.
    alone, one = PAIRS[name][0](1), np.full(1, 0.7, np.float32)
    for step in range(3):
        alone.update(one, np.full(1, 0.3 - 0.2 * step, np.float32), 0.1)
    assert one[0] == weights[0]


@EVERY_OPTIMIZER
def test_weights_change_in_place_and_the_gradient_stays(name: str) -> None:
    optimizer: Optimizer = PAIRS[name][0](BLOCK + 1)
    memory = np.zeros(BLOCK + 5, np.float32)
    weights, gradient = memory[2:-2], start_and_gradients(BLOCK + 1)[1][0]
    given = gradient.copy()
    optimizer.update(weights, gradient, 0.1)
    assert np.array_equal(gradient, given)
    assert np.all(weights != 0.0)
    assert memory[[0, 1, -2, -1]].tolist() == [0.0] * 4


def updated(optimizer: Optimizer, weights: list[float], *steps: tuple[list[float], float]) -> list[float]:
    vector = np.array(weights, np.float32)
    for gradient, rate in steps:
        optimizer.update(vector, np.array(gradient, np.float32), rate)
    numbers: list[float] = vector.tolist()
    return numbers


def test_adams_epsilon_is_added_after_bias_correction() -> None:
    # First step: m / c1 = g and sqrt(v / c2) = |g|, so 1 of g / (|g| + 1e-8) at g = 1e-8 is half a step. Before bias
    # correction, epsilon would weigh 1 / sqrt(1 - 0.999) = 32 times as much.
    assert updated(Adam(3), [0.0] * 3, ([1e-8, -1e-8, 0.0], 1.0)) == pytest.approx([-0.5, 0.5, 0.0], rel=1e-6)


def test_a_gradient_of_zero_moves_nothing_and_is_no_division_by_zero() -> None:
    for optimizer in (SGD(2), SGD(2, momentum=0.9, nesterov=True), Adam(2)):
        assert updated(optimizer, [1.0, -2.0], ([0.0, 0.0], 0.1), ([0.0, 0.0], 0.1)) == [1.0, -2.0]


def test_momentum_remembers_steps_and_not_gradients() -> None:
    # v holds what was moved: when the rate falls to 0 the weights roll on by mu v. (torch.optim holds gradients and
    # multiplies them by the rate of the day; the two agree only while the rate is constant.)
    fall = (([1.0], 1.0), ([5.0], 0.0), ([5.0], 0.0))
    assert updated(SGD(1, momentum=0.5), [0.0], *fall) == [-1.75]  # v = -1, -0.5, -0.25
    assert updated(SGD(1, momentum=0.5, nesterov=True), [0.0], *fall) == [-1.875]  # v / 2 - eta g: -1.5, -0.25, -0.125


def test_decoupled_decay_shrinks_and_coupled_decay_is_a_part_of_the_gradient() -> None:
    # One plain step of SGD is the same by both; they differ where the gradient has a memory or a scale.
    assert updated(SGD(1, weight_decay=0.5), [2.0], ([1.0], 0.25)) == [1.5]
    assert updated(SGD(1, weight_decay=0.5, decoupled=False), [2.0], ([1.0], 0.25)) == [1.5]
    heavy = (([1.0], 0.25), ([0.0], 0.25))
    # Decoupled: v = -0.25, w = 2 - 0.25 - 0.25 = 1.5; then v = -0.125, w = 1.5 - 0.1875 - 0.125.
    assert updated(SGD(1, momentum=0.5, weight_decay=0.5), [2.0], *heavy) == [1.1875]
    # Coupled: g = 2, v = -0.5, w = 1.5; then g = 0.75, v = -0.25 - 0.1875, w = 1.5 - 0.4375.
    assert updated(SGD(1, momentum=0.5, weight_decay=0.5, decoupled=False), [2.0], *heavy) == [1.0625]
    # Adam's first step is the rate whatever the gradient; only decoupled decay adds to it.
    assert updated(Adam(1, weight_decay=0.5), [2.0], ([1.0], 0.25)) == pytest.approx([1.5], rel=1e-6)
    assert updated(Adam(1, weight_decay=0.5, decoupled=False), [2.0], ([1.0], 0.25)) == pytest.approx([1.75], rel=1e-6)


WITNESSES: dict[str, tuple[Any, Any]] = {
    "sgd": (lambda n: SGD(n), lambda optim, w: optim.SGD(w, lr=0.05)),
    "momentum": (lambda n: SGD(n, momentum=0.9), lambda optim, w: optim.SGD(w, lr=0.05, momentum=0.9)),
    "nesterov, coupled": (
        lambda n: SGD(n, momentum=0.9, nesterov=True, weight_decay=0.3, decoupled=False),
        lambda optim, w: optim.SGD(w, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.3),
    ),
    "adam": (lambda n: Adam(n), lambda optim, w: optim.Adam(w, lr=0.05)),
    "adam, coupled": (
        lambda n: Adam(n, weight_decay=0.3, decoupled=False),
        lambda optim, w: optim.Adam(w, lr=0.05, weight_decay=0.3),
    ),
    "adamw": (lambda n: Adam(n, weight_decay=0.3), lambda optim, w: optim.AdamW(w, lr=0.05, weight_decay=0.3)),
}


@pytest.mark.parametrize("name", WITNESSES)
@pytest.mark.needs("torch")
def test_torch_takes_the_same_steps_at_a_constant_rate(name: str) -> None:
    import torch

    size = BLOCK + 1
    start, gradients = start_and_gradients(size)
    weights, theirs = start.copy(), torch.tensor(start, requires_grad=True)
    optimizer, witness = WITNESSES[name][0](size), WITNESSES[name][1](torch.optim, [theirs])
    for gradient in gradients:
        optimizer.update(weights, gradient, 0.05)
        theirs.grad = torch.tensor(gradient)
        witness.step()
    assert_same_change(weights, theirs.detach().numpy().astype(np.float64), start)
