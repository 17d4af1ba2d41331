"""Where a derivative has a choice, all backends make the same one: real images are full of equal pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpcnn.network import Conv2D, Dense, Dropout, Flatten, Layer, MaxPool2D, ReLU, Segment
from hpcnn.wrappers.contract import SegmentModel
from tests.wrappers.backends import EVERY_BACKEND
from tests.wrappers.probes import assert_answers, borrow, build, network, some_rows, some_weights
from tests.wrappers.segment_reference import Rows, answer

pytestmark = EVERY_BACKEND


def exact(model: SegmentModel, x: Any, slopes: Any) -> None:
    """Output and input gradient of a segment without weights, on small whole numbers: no rounding, so equal bits."""
    rows = Rows(np.asarray(x, np.float32), (), np.asarray(slopes, np.float32), None)
    expected = answer(model.segment, np.empty(0), rows)
    assert np.array_equal(model.forward(0, rows.x), expected.output)
    assert np.array_equal(model.backward(0, rows.output_gradient), expected.input_gradient)


def first_layers(*layers: Layer, shape: tuple[int, int, int]) -> Segment:
    return network(*layers, shape=shape).segment(0, len(layers))


def whole_numbers(segment: Segment, low: int, high: int) -> tuple[Any, Any]:
    """Inputs of few different values, and output gradients."""
    generator = np.random.default_rng(3)
    x = generator.integers(low, high + 1, size=(3, *segment.input_shape))
    return x, generator.integers(1, 9, size=(3, *segment.output_shape))


@pytest.mark.parametrize(
    ("image", "gradient"),
    [
        ([[1, 2], [2, 2]], [[0, 5], [0, 0]]),
        ([[0, 0], [0, 0]], [[5, 0], [0, 0]]),
        ([[-1, -3], [-1, -1]], [[5, 0], [0, 0]]),
        ([[1, 1], [3, 3]], [[0, 0], [5, 0]]),
    ],
)
def test_a_max_pool_gradient_goes_to_the_first_maximum(backend: str, image: Any, gradient: Any) -> None:
    model = borrow(backend, first_layers(MaxPool2D(), shape=(1, 2, 2)), input_gradient=True)
    model.forward(0, np.array([[image]], np.float32))
    returned = model.backward(0, np.full((1, 1, 1, 1), 5, np.float32))
    assert returned is not None
    assert returned.tolist() == [[gradient]]


@pytest.mark.matrix
@pytest.mark.parametrize("channels", [1, 3, 16, 37])  # vectorised code has a body and a rest
@pytest.mark.parametrize("pool", [MaxPool2D(), MaxPool2D(size=3, stride=1), MaxPool2D(size=(3, 2), stride=(2, 1))])
@pytest.mark.parametrize("values", [(0, 0), (-1, 1), (-3, -1)])
def test_max_pools_of_images_full_of_ties(
    backend: str, channels: int, pool: MaxPool2D, values: tuple[int, int]
) -> None:
    segment = first_layers(pool, shape=(channels, 9, 7))
    exact(build(backend, segment, input_gradient=True), *whole_numbers(segment, *values))


@pytest.mark.parametrize("layers", [(ReLU(), MaxPool2D()), (MaxPool2D(), ReLU()), (ReLU(), ReLU(), MaxPool2D(size=3))])
def test_relu_and_max_pool_in_either_order(backend: str, layers: tuple[Layer, ...]) -> None:
    segment = first_layers(*layers, shape=(5, 9, 7))
    exact(build(backend, segment, input_gradient=True), *whole_numbers(segment, -2, 1))


@pytest.mark.parametrize("shape", [(1, 5, 3), (16, 9, 7)])
def test_the_slope_of_relu_at_exactly_0_is_0(backend: str, shape: tuple[int, int, int]) -> None:
    segment = first_layers(ReLU(), shape=shape)
    model = build(backend, segment, input_gradient=True)
    x, slopes = whole_numbers(segment, -1, 1)
    exact(model, x, slopes)
    exact(model, np.where(x == 0, -0.0, x), slopes)
    exact(model, np.zeros_like(x), slopes)


def test_relu_at_0_after_convolution_and_dense_with_zero_biases(backend: str) -> None:
    # A blank image and zero biases: every activation is exactly 0, and no gradient passes.
    architecture = network(Conv2D(filters=4, kernel=3), ReLU(), MaxPool2D(), Flatten(), Dense(units=5), ReLU())
    weights = some_weights(architecture.whole)
    for parameter in architecture.parameters:
        if parameter.role == "bias":
            parameter.view(weights)[:] = 0.0
    model = build(backend, architecture.whole, weights, input_gradient=True)
    rows = some_rows(architecture.whole, 4)  # labels do not balance, which would leave the last bias 0 as well
    blank = Rows(np.zeros_like(rows.x), rows.masks, rows.output_gradient, rows.labels)
    assert_answers(model, blank)
    head = architecture.parameters[-1]
    assert not model.gradient[: head.offset].any()
    assert head.view(model.gradient).any()


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_constant_images(backend: str, value: float) -> None:
    # Padding makes the edges differ, the inside is all ties. Whole-number weights keep equal what is equal: sums of
    # a value's multiples are rounded alike in any order only if they are exact, so 0.1 is taken to 8 bits.
    architecture = network(
        Conv2D(filters=3, kernel=3, padding="same"),
        ReLU(),
        MaxPool2D(size=2),
        Dropout(rate=0.3),
        Conv2D(filters=3, kernel=2, padding="same"),
        MaxPool2D(size=3, stride=2),
        shape=(2, 11, 9),
    )
    weights = some_weights(architecture.whole)
    for parameter in architecture.parameters[:4]:
        view = parameter.view(weights)
        view[...] = np.round(view * 4)
    model = build(backend, architecture.whole, weights, input_gradient=True)
    rows = some_rows(architecture.whole, 3)
    flat = np.full_like(rows.x, np.round(value * 256) / 256)
    halves = [np.where(mask > 0, np.float32(1.5), np.float32(0)) for mask in rows.masks]
    assert_answers(model, Rows(flat, halves, rows.output_gradient, rows.labels))


def test_of_equal_logits_the_first_class_counts_as_the_answer(backend: str) -> None:
    architecture = network(shape=(1, 2, 2))
    model = build(backend, architecture.whole, np.zeros(architecture.size))
    model.forward(0, np.ones((4, 1, 2, 2), np.float32))
    result = model.loss_backward(0, np.array([0, 1, 2, 0]), 4)
    assert result.correct == 2
    assert abs(result.loss_sum - 4 * np.log(3)) < 4 * np.log(3) * 2**-22  # a few roundings of float32
