"""On real digits, every backend's first steps are those of the float64 mathematics (rule 2).

Bounds are rule 2's 1e-5 for a gradient, and 1e-4 for five steps. Float32 reaches them with room (3e-6 and 4e-5 were
seen), unless a derivative's choice is made differently: digits are full of equal pixels and, with biases of 0, of
activations that are exactly 0. A pool whose gradient goes to every tied cell, or a relu of slope 1/2 at 0, is off by
0.02 to 3 (measured).
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest

from hpcnn.network import Architecture
from hpcnn.parallel.optimizers import SGD, Adam
from hpcnn.parallel.parts import LocalBatch
from tests.parity import numpy_optimizers
from tests.parity.digits import batches, clear_of_kinks, executor_of, relative_errors, start
from tests.parity.numpy_reference import Reference
from tests.wrappers.backends import EVERY_BACKEND

GRADIENT_BOUND = 1e-5
UPDATE_BOUND = 1e-4
STEPS = 5
pytestmark = [
    EVERY_BACKEND,
    pytest.mark.matrix,
    pytest.mark.parametrize("network", ["cnn2d_3layer_fullconnected_3layer", "cnn2d_2layer_fullconnected_2layer"]),
]


@cache
def exact_gradient(network: str, bias: float) -> tuple[Architecture, Any, LocalBatch, float, Any]:
    """Architecture, weights and batch; in float64 the sum of the rows' losses, and the gradient."""
    architecture, weights = start(network, 7, bias)
    batch = clear_of_kinks(next(batches(architecture, 50, seed=7)), architecture, weights)
    loss, gradient, _ = Reference(architecture, weights).loss_and_gradient(
        batch.x, batch.labels, batch.masks, batch.global_rows
    )
    return architecture, weights, batch, loss, gradient


@pytest.mark.parametrize("bias", [0.0, 0.01])
def test_loss_and_gradient_of_step_0_equal_float64(backend: str, network: str, bias: float) -> None:
    architecture, weights, batch, loss, gradient = exact_gradient(network, bias)
    assert all(0 < np.mean(mask == 0) < 1 for mask in batch.masks)  # dropout is on
    executor, vectors = executor_of(backend, architecture, weights, SGD(architecture.size))
    result = executor.step(batch, rate=0.0)

    rows = batch.global_rows
    errors = relative_errors(architecture, vectors.gradient, gradient)
    assert max(errors.values()) < GRADIENT_BOUND, errors
    assert abs(result.loss - loss / rows) < GRADIENT_BOUND * loss / rows
    assert abs(result.gradient_norm / np.linalg.norm(gradient) - 1) < GRADIENT_BOUND


OPTIMIZERS: dict[str, Any] = {
    "nesterov": (
        lambda size: SGD(size, momentum=0.9, nesterov=True),
        lambda: numpy_optimizers.SGD(0.05, momentum=0.9, nesterov=True, decay=1e-6),
        lambda step: 0.05 / (1 + 1e-6 * step),
    ),
    "adam": (Adam, lambda: numpy_optimizers.Adam(5e-4), lambda step: 5e-4),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_five_updates_equal_float64(backend: str, network: str, optimizer: str) -> None:
    # Adam divides a gradient by its own size, so a number whose gradient float32 cannot tell from 0 moves by up to a
    # whole step either way, and its activations may then cross kinks. One start in ten has such a number (measured);
    # a wrong formula or a wrong choice at a tie shows at every start. So one of three starts has to be within bound.
    found = []
    for seed in (7, 8, 9):
        found.append(update_errors(backend, network, optimizer, seed))
        if max(found[-1].values()) < UPDATE_BOUND:
            return
    pytest.fail(f"updates differ from float64's by {found}")


@cache
def exact_updates(network: str, optimizer: str, seed: int) -> tuple[Architecture, Any, list[LocalBatch], Any]:
    """Architecture, weights and batches, and the weights that five steps with dropout leave in float64."""
    architecture, weights = start(network, seed, bias=0.0)
    reference, exact, taken = OPTIMIZERS[optimizer][1](), weights.astype(np.float64), []
    for batch in islice(batches(architecture, 24, seed), STEPS):
        taken.append(clear_of_kinks(batch, architecture, exact))
        _, gradient, _ = Reference(architecture, exact).loss_and_gradient(
            taken[-1].x, taken[-1].labels, taken[-1].masks, taken[-1].global_rows
        )
        exact = reference.step(exact, gradient)
    return architecture, weights, taken, exact


def update_errors(backend: str, network: str, optimizer: str, seed: int) -> dict[str, float]:
    """Of each tensor, after five steps with dropout: relative error of its change."""
    make, _, rate = OPTIMIZERS[optimizer]
    architecture, weights, taken, exact = exact_updates(network, optimizer, seed)
    executor, vectors = executor_of(backend, architecture, weights, make(architecture.size))
    for step, batch in enumerate(taken):
        executor.step(batch, rate(step))
    return relative_errors(architecture, vectors.weights.astype(np.float64) - weights, exact - weights)
