from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity.numpy_optimizers import SGD, Adam, Optimizer


def run(optimizer: Optimizer, steps: int) -> Any:
    """Weights after some steps on gradients that change with the step and the weights."""
    weights = np.array([1.0, -2.0, 0.5])
    for step in range(steps):
        weights = optimizer.step(weights, np.cos(step + np.arange(3)) + 0.1 * weights)
    return weights


def run_torch(make: Any, steps: int) -> Any:
    import torch

    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    optimizer = make(torch.optim, [weights])
    for step in range(steps):
        weights.grad = torch.cos(step + torch.arange(3, dtype=torch.float64)) + 0.1 * weights.detach()
        optimizer.step()
    return weights.detach().numpy()


def test_sgd_steps_worked_by_hand() -> None:
    plain, heavy, nesterov = SGD(0.1), SGD(0.1, momentum=0.5), SGD(0.1, momentum=0.5, nesterov=True)
    assert plain.step([1.0], [2.0]) == pytest.approx([0.8])
    assert heavy.step([1.0], [2.0]) == pytest.approx([0.8])
    assert heavy.step([0.8], [2.0]) == pytest.approx([0.5])  # v = 0.5 x -0.2 - 0.2 = -0.3
    assert nesterov.step([1.0], [2.0]) == pytest.approx([0.7])  # v = -0.2; 0.5 x -0.2 - 0.2 = -0.3
    assert nesterov.step([0.7], [2.0]) == pytest.approx([0.35])  # v = -0.3; 0.5 x -0.3 - 0.2 = -0.35


def test_decay_divides_the_rate_by_one_plus_decay_times_steps_taken() -> None:
    optimizer = SGD(1.0, decay=0.5)
    changes = [float(optimizer.step([0.0], [1.0])[0]) for _ in range(4)]
    assert changes == pytest.approx([-1, -1 / 1.5, -1 / 2, -1 / 2.5])


def test_adam_first_steps_worked_by_hand() -> None:
    optimizer = Adam(0.1, epsilon=1.0)
    # First step: both corrected moments are g and g squared, so the change is -0.1 g / (|g| + 1).
    assert optimizer.step([0.0], [3.0]) == pytest.approx([-0.1 * 3 / 4])
    # Second, with gradient -3: m = (0.9 x 0.3 - 0.3) / (1 - 0.81), v = 9.
    assert optimizer.step([0.0], [-3.0]) == pytest.approx([-0.1 * (-0.03 / 0.19) / 4])


def test_coupled_decay_acts_through_the_gradient_and_decoupled_on_the_weights() -> None:
    assert SGD(0.1, weight_decay=0.5, decoupled=False).step([2.0], [1.0]) == pytest.approx([2 - 0.1 * (1 + 1)])
    assert SGD(0.1, weight_decay=0.5).step([2.0], [1.0]) == pytest.approx([2 - 0.1 - 0.1 * 0.5 * 2])
    # Adam's first change is -0.1 sign(g) whatever g is, up to epsilon 1e-8 relative to g.
    assert Adam(0.1, weight_decay=0.5, decoupled=False).step([2.0], [1.0]) == pytest.approx([1.9], abs=1e-8)
    assert Adam(0.1, weight_decay=0.5).step([2.0], [1.0]) == pytest.approx([1.8], abs=1e-8)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD(0.1), lambda optim, w: optim.SGD(w, lr=0.1)),
        (SGD(0.1, momentum=0.9), lambda optim, w: optim.SGD(w, lr=0.1, momentum=0.9)),
        (SGD(0.1, momentum=0.9, nesterov=True), lambda optim, w: optim.SGD(w, lr=0.1, momentum=0.9, nesterov=True)),
        (SGD(0.1, weight_decay=0.2, decoupled=False), lambda optim, w: optim.SGD(w, lr=0.1, weight_decay=0.2)),
        (Adam(0.1), lambda optim, w: optim.Adam(w, lr=0.1)),
        (Adam(0.1, weight_decay=0.2, decoupled=False), lambda optim, w: optim.Adam(w, lr=0.1, weight_decay=0.2)),
        (Adam(0.1, weight_decay=0.2), lambda optim, w: optim.AdamW(w, lr=0.1, weight_decay=0.2)),
    ],
    ids=["sgd", "momentum", "nesterov", "sgd coupled", "adam", "adam coupled", "adam decoupled"],
)
def test_torch_in_float64_takes_the_same_steps(ours: Optimizer, theirs: Any) -> None:
    # 50 steps of some ten roundings on numbers of size 1: 500 x 2**-53 = 6e-14.
    assert np.abs(run(ours, 50) - run_torch(theirs, 50)).max() < 1e-13
