"""An optimizer's state: what a checkpoint takes and gives back, how a run's settings make one, and the norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpcnn.config import RunConfig
from hpcnn.errors import CheckpointError
from hpcnn.parallel.optimizers import BLOCK, SGD, Adam, gradient_norm, make_optimizer

Array = Any
MAKERS: dict[str, Any] = {
    "sgd": lambda n: SGD(n),
    "momentum": lambda n: SGD(n, momentum=0.9, nesterov=True),
    "adam": lambda n: Adam(n),
}


def gradients(count: int, size: int) -> Array:
    return np.random.default_rng(0).normal(size=(count, size)).astype(np.float32)


def test_state_has_a_vector_a_name_and_starts_at_zero() -> None:
    assert {name: sorted(make(3).state) for name, make in MAKERS.items()} == {
        "sgd": [],
        "momentum": ["velocity"],
        "adam": ["first_moment", "second_moment"],
    }
    for vector in MAKERS["adam"](3).state.values():
        assert vector.dtype == np.float32
        assert vector.tolist() == [0, 0, 0]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_loaded_state_goes_on_to_the_same_bits(make: Any) -> None:
    size = BLOCK + 3
    through, weights = make(size), np.ones(size, np.float32)
    first, second = gradients(6, size)[:3], gradients(6, size)[3:]
    for gradient in first:
        through.update(weights, gradient, 0.01)
    resumed, other = make(size), weights.copy()
    state = {name: vector.copy() for name, vector in through.state.items()}
    resumed.load(state, through.updates)
    for vector in state.values():
        vector.fill(np.nan)  # the checkpoint's memory is not taken over
    for gradient in second:
        through.update(weights, gradient, 0.01)
        resumed.update(other, gradient, 0.01)
    assert np.array_equal(weights, other)
    assert resumed.updates == through.updates == 6


@pytest.mark.parametrize(
    ("target", "source", "message"),
    [
        ("adam", "momentum", r"is \['velocity'\], this run's is \['first_moment', 'second_moment'\]: resume with"),
        ("momentum", "adam", r"is \['first_moment', 'second_moment'\], this run's is \['velocity'\]: resume with"),
        ("momentum", "sgd", r"is empty, this run's is \['velocity'\]: resume with"),
        ("sgd", "momentum", r"is \['velocity'\], this run's is \[\]: resume with"),
    ],
)
def test_another_optimizers_state_is_refused(target: str, source: str, message: str) -> None:
    with pytest.raises(CheckpointError, match="the checkpoint's optimizer state " + message):
        MAKERS[target](3).load(MAKERS[source](3).state, 1)


def test_a_state_of_another_size_is_refused() -> None:
    optimizer = Adam(4)
    with pytest.raises(CheckpointError, match="the checkpoint's first_moment has 3 numbers, this network 4"):
        optimizer.load(Adam(3).state, 1)
    assert optimizer.updates == 0


def test_settings_make_the_optimizer_that_they_name() -> None:
    sgd = dict(optimizer="sgd", momentum=0.9, nesterov=True, weight_decay=0.3)
    adam = dict(optimizer="adam", beta1=0.5, beta2=0.75, weight_decay=0.3)
    for kind in ("coupled", "decoupled"):
        decoupled = kind == "decoupled"
        for settings, expected in (
            (sgd, SGD(5, momentum=0.9, nesterov=True, weight_decay=0.3, decoupled=decoupled)),
            (adam, Adam(5, beta1=0.5, beta2=0.75, weight_decay=0.3, decoupled=decoupled)),
        ):
            made = make_optimizer(RunConfig(**settings, weight_decay_kind=kind), 5)
            assert type(made) is type(expected)
            ours, theirs = np.ones(5, np.float32), np.ones(5, np.float32)
            for gradient in gradients(3, 5):
                made.update(ours, gradient, 0.01)
                expected.update(theirs, gradient, 0.01)
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_the_norm_is_euclidean_over_all_blocks(size: int) -> None:
    vector = gradients(1, size)[0]
    # Squares are of one sign, so each of n roundings in a block counts whole, but a dot product adds in lanes, eight at
    # least: sqrt(n / 8) x 2**-24 = 4e-6 at n = 32,768. The root halves it.
    assert gradient_norm(vector) == pytest.approx(np.linalg.norm(vector.astype(np.float64)), rel=2e-6)


def test_the_norm_of_whole_numbers_is_exact_where_squares_are() -> None:
    vector = np.zeros(2 * BLOCK + 1, np.float32)
    vector[[0, BLOCK, -1]] = 2.0, 3.0, 6.0
    assert gradient_norm(vector) == 7.0
    assert gradient_norm(np.zeros(0, np.float32)) == 0.0
