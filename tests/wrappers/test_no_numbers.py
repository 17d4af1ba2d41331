"""What is no number stays none through every layer of every backend: a network that diverged shows in its loss.

A comparison with nan is false, so a maximum that compares may drop it and answer with a number like any other.
TensorFlow's own do, and are kept in training for their speed (hpcnn/wrappers/tensorflow_layers.py): there it is
inference that shows it. That no such training ends as completed is tested in tests/training/test_diverged.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpcnn.network import AveragePool2D, Conv2D, Dense, Dropout, Flatten, Layer, MaxPool2D, ReLU, Tanh
from hpcnn.network.parameters import Parameter
from hpcnn.wrappers.registry import open_backend
from tests.wrappers.backends import EVERY_BACKEND, frameworks_of
from tests.wrappers.probes import DEEP, assert_answers, assert_near, borrow, build, network, some_rows, some_weights
from tests.wrappers.segment_reference import SegmentReference

LAYERS: dict[str, tuple[Layer, ...]] = {
    "convolution": (Conv2D(filters=5, kernel=3, padding="same"),),
    "convolution of groups": (Conv2D(filters=4, kernel=2, groups=2),),
    "relu": (ReLU(),),
    "tanh": (Tanh(),),
    "max pool": (MaxPool2D(),),
    "max pool, overlapping": (MaxPool2D(size=3, stride=1),),
    "max pool, much wider than a vector": (MaxPool2D(size=(2, 6)),),
    "relu before a max pool": (ReLU(), MaxPool2D(size=3, stride=2)),
    "average pool": (AveragePool2D(size=3, stride=2),),
    "dropout": (Dropout(rate=0.4),),
    "flatten and dense": (Flatten(), Dense(units=5)),
    "flatten, dense, relu": (Flatten(), Dense(units=5), ReLU()),
}
SHAPE = (7, 6)


@EVERY_BACKEND
@pytest.mark.parametrize("channels", [1, 16])
@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS.keys())
def test_nan_at_any_place_of_an_image_comes_out_of_its_row(
    backend: str, layers: tuple[Layer, ...], channels: int
) -> None:
    if channels == 1 and any(isinstance(layer, Conv2D) and layer.groups > 1 for layer in layers):
        channels = 2
    segment = network(*layers, shape=(channels, *SHAPE)).segment(0, len(layers))
    places = list(np.ndindex(SHAPE))
    rows = some_rows(segment, 2 * len(places))  # each second one is spoilt, each in a place of its own
    for row, place in enumerate(places):
        rows.x[(2 * row, channels - 1, *place)] = np.nan
    model = build(backend, segment)
    with np.errstate(invalid="ignore"):
        expected = SegmentReference(segment, model.weights).logits(rows.x, rows.masks)
    assert np.isnan(expected[::2]).any(axis=tuple(range(1, expected.ndim))).sum() >= 0.7 * len(places)  # not left over
    ones = [np.ones_like(mask) for mask in rows.masks]
    with np.errstate(invalid="ignore"):
        inferred = SegmentReference(segment, model.weights).logits(rows.x, ones)
    check(model.infer(rows.x), inferred)
    if not loses_nan_in_training(backend):
        check(model.forward(0, rows.x, rows.masks), expected)


def check(given: Any, expected: Any) -> None:
    assert np.isnan(given[np.isnan(expected)]).all()
    assert_near(np.delete(given, np.s_[::2], axis=0), expected[1::2])


def loses_nan_in_training(backend: str) -> bool:
    """Whether its training may take nan for less than any number."""
    return "tensorflow" in frameworks_of(backend)


def spoil(weights: Any, parameter: Parameter, value: float) -> Any:
    """A copy whose last number of one tensor is `value`."""
    weights = weights.copy()
    parameter.view(weights).flat[-1] = value
    return weights


@EVERY_BACKEND
@pytest.mark.parametrize("parameter", DEEP.parameters, ids=lambda parameter: parameter.name)
def test_one_number_of_any_tensor_that_is_nan_makes_the_loss_nan(backend: str, parameter: Parameter) -> None:
    model, rows = borrow(backend, DEEP.whole), some_rows(DEEP.whole, 4)
    fine = model.weights.copy()
    model.weights[:] = spoil(fine, parameter, np.nan)
    assert np.isnan(model.infer(rows.x)).any(axis=1).all()
    model.forward(0, rows.x, rows.masks)
    loss = model.loss_backward(0, rows.labels, 4).loss_sum
    assert np.isnan(loss) or loses_nan_in_training(backend)
    model.weights[:] = fine
    assert_answers(model, rows)  # nothing of it stays in the model


@EVERY_BACKEND
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38])
def test_weights_that_went_astray_give_a_loss_that_is_not_finite(backend: str, value: float) -> None:
    architecture = network(Conv2D(filters=3, kernel=2), ReLU(), MaxPool2D(), Conv2D(filters=2, kernel=1), MaxPool2D())
    rows, weights = some_rows(architecture.whole, 4), some_weights(architecture.whole)
    model = build(backend, architecture.whole, weights)
    model.weights *= np.float32(value)
    assert not np.isfinite(model.infer(rows.x)).all()
    model.forward(0, rows.x, rows.masks)
    loss = model.loss_backward(0, rows.labels, 4).loss_sum
    assert not np.isfinite(loss) or loses_nan_in_training(backend)
    model.weights[:] = weights
    assert_answers(model, rows)


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("backend", ["tensorflow", "keras"])
def test_xla_loses_no_nan(backend: str) -> None:
    layers = Conv2D(filters=16, kernel=3, padding="same"), ReLU(), MaxPool2D(), Flatten(), Dense(units=5), ReLU()
    architecture = network(*layers, shape=(1, *SHAPE))
    options = {"jit_compile": True, **({"backend": "tensorflow"} if backend == "keras" else {})}
    weights, rows = some_weights(architecture.whole), some_rows(architecture.whole, 4)
    for parameter in architecture.parameters:
        own = spoil(weights, parameter, np.nan)
        model = open_backend(backend, options)(architecture.whole, own, np.zeros_like(own))
        model.forward(0, rows.x, rows.masks)
        assert np.isnan(model.loss_backward(0, rows.labels, 4).loss_sum), parameter.name
