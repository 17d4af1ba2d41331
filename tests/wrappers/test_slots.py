"""Slots: any number open, closed in any order, each with its own rows; gradients are added in the caller's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpcnn.network import Segment
from hpcnn.wrappers.registry import open_backend
from tests.wrappers.backends import EVERY_BACKEND
from tests.wrappers.probes import (
    DEEP,
    MIDDLE,
    NOISE,
    assert_answers,
    assert_gradient,
    assert_near,
    borrow,
    build,
    close,
    expect,
    some_rows,
    some_weights,
)
from tests.wrappers.segment_reference import Rows

pytestmark = EVERY_BACKEND
MIDDLE_AND_WHOLE = pytest.mark.parametrize("segment", [MIDDLE, DEEP.whole], ids=["middle", "whole"])
SIZES = (3, 1, 6, 2, 5)


@pytest.mark.matrix
@MIDDLE_AND_WHOLE
@pytest.mark.parametrize(
    "order",
    [
        "F1 F2 B2 B1",
        "F1 F2 B1 B2",
        "F1 B1 F1 B1",
        "F0 F1 F2 F3 B0 B1 B2 B3",
        "F1 F2 F3 B2 F4 B4 F2 B1 B3 B2",
        "F900 F7 B900 B7",
    ],
)
def test_slots_of_unequal_sizes_close_in_any_order(backend: str, segment: Segment, order: str) -> None:
    model = borrow(backend, segment)
    opened: dict[int, Any] = {}
    total = np.zeros(segment.size)
    for number, (kind, *digits) in enumerate(order.split()):
        slot = int("".join(digits))
        if kind == "F":
            rows = some_rows(segment, SIZES[number % len(SIZES)], seed=number)
            expected = expect(model, rows)
            assert_near(model.forward(slot, rows.x, rows.masks), expected.output)
            opened[slot] = rows, expected
        else:
            rows, expected = opened.pop(slot)
            close(model, slot, rows, expected)
            total += expected.gradient
            assert_gradient(model, total)


@MIDDLE_AND_WHOLE
def test_a_forward_on_an_open_slot_is_refused_and_changes_nothing(backend: str, segment: Segment) -> None:
    model, rows, others = borrow(backend, segment), some_rows(segment, 3), some_rows(segment, 5, seed=1)
    expected, then = expect(model, rows), expect(model, others)
    model.forward(12, rows.x, rows.masks)
    with pytest.raises(ValueError, match="slot 12 is open already"):
        model.forward(12, others.x, others.masks)
    close(model, 12, rows, expected)
    assert_gradient(model, expected.gradient)
    model.forward(12, others.x, others.masks)  # closed, it can be opened again
    close(model, 12, others, then)
    assert_gradient(model, expected.gradient + then.gradient)


@MIDDLE_AND_WHOLE
def test_micro_batches_add_up_to_the_whole_batch(backend: str, segment: Segment) -> None:
    rows = some_rows(segment, 9)
    model = borrow(backend, segment, input_gradient=True)
    expected = expect(model, rows)
    input_gradients = []
    for start, stop in ((0, 4), (4, 5), (5, 9)):
        piece = Rows(
            rows.x[start:stop],
            [mask[start:stop] for mask in rows.masks],
            rows.output_gradient[start:stop],
            rows.labels[start:stop],
        )
        model.forward(0, piece.x, piece.masks)
        input_gradients.append(close(model, 0, piece, expect(model, piece)))
    assert_gradient(model, expected.gradient)
    assert_near(np.concatenate(input_gradients), expected.input_gradient)


@MIDDLE_AND_WHOLE
def test_a_gradient_is_added_to_what_the_callers_vector_holds(backend: str, segment: Segment) -> None:
    weights, before = some_weights(segment), some_weights(segment, seed=5)
    gradient = before.copy()
    model = open_backend(backend)(segment, weights, gradient)
    rows = some_rows(segment, 4)
    expected = expect(model, rows)
    model.forward(0, rows.x, rows.masks)
    assert np.array_equal(gradient, before)  # a forward alone adds nothing
    close(model, 0, rows, expected)
    assert model.gradient is gradient
    assert_gradient(model, before + expected.gradient)
    gradient.fill(0.0)
    model.forward(0, rows.x, rows.masks)
    close(model, 0, rows, expected)
    assert_gradient(model, expected.gradient)


@MIDDLE_AND_WHOLE
def test_neighbours_of_the_callers_vectors_stay_as_they_are(backend: str, segment: Segment) -> None:
    # Vectors are often slices: the gradient of a message, the weights of one segment among several.
    memory = np.full((2, segment.size + 10), 7.0, np.float32)
    memory[0, 5:-5], memory[1, 5:-5] = some_weights(segment), 0.0
    model = open_backend(backend)(segment, memory[0, 5:-5], memory[1, 5:-5])
    assert_answers(model, some_rows(segment, 3))
    assert np.all(memory[:, :5] == 7.0)
    assert np.all(memory[:, -5:] == 7.0)


@MIDDLE_AND_WHOLE
def test_weights_go_in_and_come_back_as_the_same_bits(backend: str, segment: Segment) -> None:
    weights = some_weights(segment)
    given = weights.copy()
    model = open_backend(backend)(segment, weights, np.zeros_like(weights))
    rows = some_rows(segment, 3)
    for _ in range(2):
        model.infer(rows.x)
        assert_answers(model, rows)
    assert model.weights is weights
    assert np.array_equal(weights, given)


@MIDDLE_AND_WHOLE
def test_weights_updated_in_place_are_seen_by_the_next_forward(backend: str, segment: Segment) -> None:
    model = borrow(backend, segment)
    rows = some_rows(segment, 3)
    assert_answers(model, rows)
    for step in range(3):
        model.weights -= 0.1 * some_weights(segment, seed=step + 1)
        assert_answers(model, rows)
        assert_near(model.infer(rows.x), expect(model, without_dropout(rows)).output)
    parameter = segment.parameters[-1]
    before = model.infer(rows.x)
    parameter.view(model.weights)[0] += 0.5  # one number alone
    after = model.infer(rows.x)
    assert_near(after, expect(model, without_dropout(rows)).output)
    assert np.abs(after - before).max() > 0.1


@MIDDLE_AND_WHOLE
def test_returned_arrays_are_not_changed_by_later_calls(backend: str, segment: Segment) -> None:
    model = build(backend, segment, input_gradient=True)
    first, second = some_rows(segment, 4, seed=1), some_rows(segment, 4, seed=2)
    expected = expect(model, first)
    output = model.forward(0, first.x, first.masks)
    inferred = model.infer(first.x)
    kept = [(array, array.copy()) for array in (output, inferred)]
    model.forward(1, second.x, second.masks)
    input_gradient = close(model, 0, first, expected)
    assert input_gradient is not None
    kept.append((input_gradient, input_gradient.copy()))
    close(model, 1, second, expect(model, second))
    model.forward(0, second.x, second.masks)
    model.infer(second.x)
    for array, copy in kept:
        assert np.array_equal(array, copy)


@MIDDLE_AND_WHOLE
def test_the_inputs_of_a_call_are_not_changed(backend: str, segment: Segment) -> None:
    model, rows = borrow(backend, segment, input_gradient=True), some_rows(segment, 4)
    given = [rows.x, rows.output_gradient, rows.labels, *rows.masks]
    copies = [array.copy() for array in given]
    model.infer(rows.x)
    model.forward(0, rows.x, rows.masks)
    close(model, 0, rows, expect(model, rows))
    assert all(np.array_equal(array, copy) for array, copy in zip(given, copies, strict=True))


@MIDDLE_AND_WHOLE
def test_infer_has_no_dropout_and_leaves_no_slot(backend: str, segment: Segment) -> None:
    model, rows, others = borrow(backend, segment), some_rows(segment, 3), some_rows(segment, 5, seed=1)
    expected = expect(model, rows)
    model.forward(0, rows.x, rows.masks)
    inferred = model.infer(others.x)
    assert_near(inferred, expect(model, without_dropout(others)).output)
    assert np.linalg.norm(inferred - expect(model, others).output) > 0.1 * np.linalg.norm(inferred)
    close(model, 0, rows, expected)
    assert_gradient(model, expected.gradient)
    with pytest.raises(KeyError):
        close(model, 0, rows, expected)


def without_dropout(rows: Rows) -> Rows:
    return Rows(rows.x, [np.ones_like(mask) for mask in rows.masks], rows.output_gradient, rows.labels)


@pytest.mark.parametrize("divisor", [1, 8, 4096])
def test_the_loss_head_divides_the_gradient_once_and_the_loss_never(backend: str, divisor: int) -> None:
    model, rows = borrow(backend, DEEP.whole, input_gradient=True), some_rows(DEEP.whole, 4)
    expected = expect(model, rows, divisor=1.0)
    model.forward(0, rows.x, rows.masks)
    result = model.loss_backward(0, rows.labels, divisor)
    assert abs(result.loss_sum - expected.loss) <= NOISE * expected.loss
    assert_gradient(model, expected.gradient / divisor)
    assert_near(result.input_gradient, expected.input_gradient / divisor)
