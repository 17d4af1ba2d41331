"""Small problems for the conformance suite, and how closely a backend must answer them.

The suite knows of a wrapper what the contract says, and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcnn.network import (
    Architecture,
    AveragePool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool2D,
    ReLU,
    Segment,
    Softmax,
    Tanh,
    segment_masks,
)
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.registry import open_backend
from tests.wrappers.segment_reference import Answer, Rows, answer, loss_answer

Array = Any

NOISE = 1e-5
"""Relative, in the norm of a tensor. A float32 sum of k terms of either sign is off by sqrt(k / 2) x 2**-24 of itself:
partial sums grow like sqrt(i), each is rounded once, and roundings add like a random walk. Probes have sums of up to
1,000 terms and up to 13 layers, which a gradient passes there and back: sqrt(26) x sqrt(500) x 2**-24 = 7e-6."""


def network(*layers: Layer, shape: tuple[int, int, int] = (4, 7, 6), classes: int = 3) -> Architecture:
    """The layers, then flatten, dense and softmax."""
    return Architecture("probe", shape, (*layers, Flatten(), Dense(units=classes), Softmax()))


DEEP = network(
    Conv2D(filters=6, kernel=(3, 2), padding="same", groups=3),
    Tanh(),
    MaxPool2D(size=2),
    Dropout(rate=0.3),
    Conv2D(filters=4, kernel=3, stride=2, padding=((1, 0), (0, 2))),
    ReLU(),
    AveragePool2D(size=(1, 2), stride=1),
    Flatten(),
    Dense(units=7),
    Tanh(),
    Dropout(rate=0.2),
    shape=(3, 9, 7),
    classes=5,
)
"""Every kind of layer, odd sizes, no two axes alike."""

MIDDLE = DEEP.segment(1, 9)


def some_weights(segment: Segment, seed: int = 0) -> Array:
    """float32[size], of a size that keeps activations near 1; biases are all different."""
    generator = np.random.default_rng([seed, 1])
    weights = np.empty(segment.size, np.float32)
    for parameter in segment.parameters:
        spread = 0.2 if parameter.role == "bias" else parameter.fan_in**-0.5
        weights[parameter.span] = generator.normal(scale=spread, size=parameter.size)
    return weights


def some_rows(segment: Segment, rows: int, seed: int = 0) -> Rows:
    generator = np.random.default_rng([seed, 2])

    def normal(shape: tuple[int, ...]) -> Array:
        return generator.normal(size=(rows, *shape)).astype(np.float32)

    x, slopes = normal(segment.input_shape), normal(segment.output_shape)
    labels = generator.integers(segment.architecture.num_classes, size=rows)
    return Rows(x, segment_masks(segment, seed, 1, np.arange(rows)), slopes, labels)


def build(backend: str, segment: Segment, weights: Array | None = None, **options: Any) -> SegmentModel:
    """The segment in a backend; `.weights` and `.gradient` of the result are the caller's vectors."""
    own = some_weights(segment) if weights is None else np.array(weights, np.float32)
    return open_backend(backend)(segment, own, np.zeros(segment.size, np.float32), **options)


_IDLE: dict[tuple[Any, ...], list[SegmentModel]] = {}
_LENT: list[tuple[tuple[Any, ...], SegmentModel]] = []


def borrow(backend: str, segment: Segment, weights: Array | None = None, **options: Any) -> SegmentModel:
    """As `build`, but maybe a model that a test before has had: a framework that compiles does so once for all of them.

    For a test that closes the slots that it opens, and leaves the model's settings alone. It goes back by itself."""
    key = (backend, segment, *sorted(options.items()))
    if idle := _IDLE.get(key):
        model = idle.pop()
        model.weights[:] = some_weights(segment) if weights is None else weights
        model.gradient.fill(0.0)
    else:
        model = build(backend, segment, weights, **options)
    _LENT.append((key, model))
    return model


def take_back(*, in_order: bool) -> None:
    """What a test has borrowed; what one that failed has had, nobody gets again."""
    for key, model in _LENT if in_order else ():
        _IDLE.setdefault(key, []).append(model)
    _LENT.clear()


def assert_near(actual: Any, expected: Array, bound: float = NOISE) -> None:
    """An array as the contract wants it, within `bound` of the expected one's norm."""
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == np.float32
    assert actual.flags.c_contiguous
    assert actual.shape == expected.shape
    error = np.linalg.norm(actual.astype(np.float64) - expected)
    assert error <= bound * np.linalg.norm(expected), f"{error / np.linalg.norm(expected):.2e} of the norm"


def assert_gradient(model: SegmentModel, expected: Array, bound: float = NOISE) -> None:
    """The model's gradient, tensor by tensor."""
    for parameter in model.segment.parameters:
        assert_near(parameter.view(model.gradient), parameter.view(expected), bound)


def expect(model: SegmentModel, rows: Rows, divisor: float = 7.0) -> Answer:
    """What `rows` must give with the model's weights as they are."""
    if model.segment.is_last:
        return loss_answer(model.segment, model.weights, rows, divisor)
    return answer(model.segment, model.weights, rows)


def close(
    model: SegmentModel, slot: int, rows: Rows, expected: Answer, divisor: float = 7.0, *, half: bool = False
) -> Array | None:
    """Backward of a slot, or loss and backward of a last segment's; checks all but the weights' gradient.

    `half`: the first half of either, which leaves the slot open."""
    if not model.segment.is_last:
        input_gradient = (model.backward_input if half else model.backward)(slot, rows.output_gradient)
    else:
        result = (model.loss_backward_input if half else model.loss_backward)(slot, rows.labels, divisor)
        assert abs(result.loss_sum - expected.loss) <= NOISE * expected.loss
        assert result.correct == expected.correct
        input_gradient = result.input_gradient
    if model.input_gradient:
        assert_near(input_gradient, expected.input_gradient)
    else:
        assert input_gradient is None
    return input_gradient


def assert_answers(model: SegmentModel, rows: Rows) -> None:
    """One forward and its backward, and the weights' gradient, which starts from zero."""
    expected = expect(model, rows)
    model.gradient.fill(0.0)
    assert_near(model.forward(0, rows.x, rows.masks), expected.output)
    close(model, 0, rows, expected)
    assert_gradient(model, expected.gradient)
