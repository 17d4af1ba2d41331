"""Networks cut into segments: each does its part, chained they are the whole, and any layer can stand alone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

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
    Tanh,
    segment_masks,
)
from tests.wrappers.backends import EVERY_BACKEND
from tests.wrappers.probes import (
    DEEP,
    NOISE,
    assert_answers,
    assert_gradient,
    assert_near,
    borrow,
    build,
    expect,
    network,
    some_rows,
    some_weights,
)

pytestmark = EVERY_BACKEND
LAYERS = len(DEEP.layers)


@pytest.mark.parametrize(
    "cuts", [(0, 1, 9, LAYERS), (0, 4, 5, 12, LAYERS), tuple(range(LAYERS + 1))], ids=["3", "4", "one a layer"]
)
def test_segments_in_a_chain_equal_the_whole(backend: str, cuts: tuple[int, ...]) -> None:
    whole, rows = borrow(backend, DEEP.whole, input_gradient=True), some_rows(DEEP.whole, 5)
    expected = expect(whole, rows)
    models = [build(backend, DEEP.segment(*pair), _slice_of(whole.weights, *pair)) for pair in pairwise(cuts)]

    value = rows.x
    for model in models:
        value = model.forward(0, value, segment_masks(model.segment, 0, 1, np.arange(5)))
    assert_near(value, expected.output)
    result = models[-1].loss_backward(0, rows.labels, 7.0)
    assert abs(result.loss_sum - expected.loss) <= NOISE * expected.loss
    assert result.correct == expected.correct
    slopes = result.input_gradient
    for model in models[-2::-1]:
        assert slopes is not None
        slopes = model.backward(0, slopes)
    assert slopes is None  # the first segment's input is data
    for model in models:
        assert_gradient(model, expected.gradient[_span(model.segment)])
    value = rows.x
    for model in models:
        value = model.infer(value)
    assert_near(value, whole.infer(rows.x).astype(np.float64))


def _span(segment: Segment) -> slice:
    return slice(segment.offset, segment.offset + segment.size)


def _slice_of(weights: Any, start: int, stop: int) -> Any:
    return weights[_span(DEEP.segment(start, stop))]


ALONE: dict[str, tuple[Layer, ...]] = {
    "convolution": (Conv2D(filters=5, kernel=3, padding="same"),),
    "relu": (ReLU(),),
    "tanh": (Tanh(),),
    "max pool": (MaxPool2D(size=2),),
    "average pool": (AveragePool2D(size=3, stride=2),),
    "flatten": (Flatten(),),
    "dropout": (Dropout(rate=0.4),),
    "pool and flatten": (MaxPool2D(size=2), Flatten()),
}


@pytest.mark.matrix
@pytest.mark.parametrize("layers", ALONE.values(), ids=ALONE.keys())
@pytest.mark.parametrize("place", ["first", "middle"])
@pytest.mark.parametrize("shape", [(1, 7, 5), (3, 4, 6)], ids=str)
def test_a_layer_alone_is_a_segment(
    backend: str, layers: tuple[Layer, ...], place: str, shape: tuple[int, int, int]
) -> None:
    before = () if place == "first" else (Tanh(),)
    segment = network(*before, *layers, shape=shape).segment(len(before), len(before) + len(layers))
    model = build(backend, segment)
    assert model.input_gradient == (place == "middle")
    for rows in (4, 1):
        assert_answers(model, some_rows(segment, rows))
        assert_inference(model, rows)


@pytest.mark.parametrize("layers", [(ReLU(),), (Tanh(),), (Flatten(),), (Dropout(rate=0.4),), (Dense(units=4),)])
def test_a_layer_alone_on_units_is_a_segment(backend: str, layers: tuple[Layer, ...]) -> None:
    segment = network(Flatten(), *layers).segment(1, 2)
    model = build(backend, segment)
    for rows in (4, 1):
        assert_answers(model, some_rows(segment, rows))
        assert_inference(model, rows)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_the_end_of_a_network_is_a_segment(backend: str, start: int) -> None:
    # flatten, dense and softmax; dense and softmax; softmax alone, which is the loss head and has no weights.
    segment = network().segment(start, 3)
    model = build(backend, segment, input_gradient=True)
    for rows in (4, 1):
        assert_answers(model, some_rows(segment, rows))
        assert_inference(model, rows)


def assert_inference(model: Any, count: int) -> None:
    rows = some_rows(model.segment, count, seed=3)
    ones = [np.ones_like(mask) for mask in rows.masks]
    plain = type(rows)(rows.x, ones, rows.output_gradient, rows.labels)
    assert_near(model.infer(rows.x), expect(model, plain).output)


def test_only_a_first_segment_returns_no_input_gradient_unless_told(backend: str) -> None:
    for segment, given, wanted in (
        (DEEP.segment(0, 9), None, False),
        (DEEP.segment(1, 9), None, True),
        (DEEP.segment(9, LAYERS), None, True),
        (DEEP.whole, None, False),
        (DEEP.segment(0, 9), True, True),
        (DEEP.segment(1, 9), False, False),
    ):
        model = borrow(backend, segment, input_gradient=given)
        assert model.input_gradient == wanted
        assert_answers(model, some_rows(segment, 3))


def test_a_segments_weights_count_from_its_own_first_number(backend: str) -> None:
    # The same layer, once behind another one and once not, answers alike from alike vectors.
    layer = Conv2D(filters=4, kernel=3, name="probed")
    behind = network(Conv2D(filters=4, kernel=1), layer).segment(1, 2)
    alone = network(layer).segment(0, 1)
    weights, rows = some_weights(alone), some_rows(alone, 3)
    assert behind.offset > 0
    outputs = [build(backend, segment, weights).forward(0, rows.x) for segment in (behind, alone)]
    assert np.array_equal(*outputs)


def test_two_models_of_one_architecture_do_not_share_slots_or_vectors(backend: str) -> None:
    architecture: Architecture = DEEP
    one, other = (borrow(backend, architecture.whole, some_weights(architecture.whole, seed)) for seed in (0, 1))
    rows, others = some_rows(architecture.whole, 3), some_rows(architecture.whole, 2, seed=4)
    expected, expected_other = expect(one, rows), expect(other, others)
    one.forward(0, rows.x, rows.masks)
    other.forward(0, others.x, others.masks)
    one.loss_backward(0, rows.labels, 7.0)
    assert not other.gradient.any()
    other.loss_backward(0, others.labels, 7.0)
    assert_gradient(one, expected.gradient)
    assert_gradient(other, expected_other.gradient)
