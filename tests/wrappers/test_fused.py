"""Forward, loss and backward in one call: what the two calls give, and no slot is any the wiser."""

from __future__ import annotations

import numpy as np
import pytest

from hpcnn.network import Segment
from tests.wrappers.backends import EVERY_BACKEND
from tests.wrappers.probes import (
    DEEP,
    NOISE,
    assert_gradient,
    assert_near,
    borrow,
    close,
    expect,
    some_rows,
    some_weights,
)

pytestmark = EVERY_BACKEND
TAIL = DEEP.segment(4, len(DEEP.layers))
DIVISOR = 7.0


@pytest.mark.matrix
@pytest.mark.parametrize("segment", [DEEP.whole, TAIL], ids=["whole", "tail"])
@pytest.mark.parametrize("input_gradient", [False, True])
def test_it_answers_as_the_reference_and_adds(backend: str, segment: Segment, input_gradient: bool) -> None:
    model = borrow(backend, segment, input_gradient=input_gradient)
    total = np.zeros(segment.size)
    for count in (5, 1, 3):
        rows = some_rows(segment, count, seed=count)
        expected = expect(model, rows, DIVISOR)
        result = model.forward_loss_backward(rows.x, rows.masks, rows.labels, DIVISOR)
        assert abs(result.loss_sum - expected.loss) <= NOISE * expected.loss
        assert result.correct == expected.correct
        if input_gradient:
            assert_near(result.input_gradient, expected.input_gradient)
        else:
            assert result.input_gradient is None
        total += expected.gradient
        assert_gradient(model, total)


def test_open_slots_stay_open_and_as_they_were(backend: str) -> None:
    model = borrow(backend, DEEP.whole)
    rows, others = some_rows(DEEP.whole, 4), some_rows(DEEP.whole, 2, seed=1)
    expected, between = expect(model, rows), expect(model, others)
    model.forward(0, rows.x, rows.masks)
    model.forward_loss_backward(others.x, others.masks, others.labels, DIVISOR)
    assert_gradient(model, between.gradient)
    close(model, 0, rows, expected)
    assert_gradient(model, between.gradient + expected.gradient)
    with pytest.raises(KeyError):
        close(model, 0, rows, expected)


def test_weights_updated_in_place_are_seen(backend: str) -> None:
    model, rows = borrow(backend, DEEP.whole), some_rows(DEEP.whole, 3)
    for step in range(3):
        model.gradient.fill(0.0)
        model.forward_loss_backward(rows.x, rows.masks, rows.labels, DIVISOR)
        assert_gradient(model, expect(model, rows).gradient)
        model.weights -= 0.1 * some_weights(DEEP.whole, seed=step + 1)


def test_masks_are_counted(backend: str) -> None:
    model, rows = borrow(backend, DEEP.whole), some_rows(DEEP.whole, 3)
    with pytest.raises(ValueError, match="2 dropouts, but 1 masks were given"):
        model.forward_loss_backward(rows.x, rows.masks[:1], rows.labels, DIVISOR)
    model.forward_loss_backward(rows.x, rows.masks, rows.labels, DIVISOR)
    assert_gradient(model, expect(model, rows).gradient)
