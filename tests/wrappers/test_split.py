"""A backward in two halves: together the bits of the whole one, with any slots between, and nothing computed twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from hpcnn.network import Architecture, Conv2D, MaxPool2D, ReLU, Segment
from hpcnn.wrappers.contract import SegmentModel
from tests.wrappers.probes import (
    DEEP,
    MIDDLE,
    assert_gradient,
    build,
    close,
    expect,
    network,
    some_rows,
)
from tests.wrappers.segment_reference import Answer, Rows
from tests.wrappers.test_layer_kinds import CASES

pytestmark = [pytest.mark.needs("torch"), pytest.mark.parametrize("backend", ["torch"])]
MIDDLE_AND_WHOLE = pytest.mark.parametrize("segment", [MIDDLE, DEEP.whole], ids=["middle", "whole"])
DIVISOR = 7.0


def whole(model: SegmentModel, slot: int, rows: Rows) -> tuple[Any, ...]:
    if not model.segment.is_last:
        return (model.backward(slot, rows.output_gradient),)
    result = model.loss_backward(slot, rows.labels, DIVISOR)
    return result.input_gradient, result.loss_sum, result.correct


def halves(model: SegmentModel, slot: int, rows: Rows) -> tuple[Any, ...]:
    before = model.gradient.copy()
    if not model.segment.is_last:
        found: tuple[Any, ...] = (model.backward_input(slot, rows.output_gradient),)
    else:
        result = model.loss_backward_input(slot, rows.labels, DIVISOR)
        found = result.input_gradient, result.loss_sum, result.correct
    assert np.array_equal(model.gradient, before)  # untouched by the first half
    model.backward_weights(slot)
    return found


def assert_the_bits_of_the_whole(backend: str, segment: Segment, **options: Any) -> None:
    one, two = build(backend, segment, **options), build(backend, segment, **options)
    for count in (5, 1, 4):
        rows = some_rows(segment, count, seed=count)
        for slot, model in enumerate((one, two)):
            model.forward(slot, rows.x, rows.masks)
        found = whole(one, 0, rows), halves(two, 1, rows)
        assert (found[0][0] is None) is not one.input_gradient
        for left, right in zip(*found, strict=True):
            assert np.array_equal(left, right)
        assert np.array_equal(one.gradient, two.gradient)
    assert segment.size == 0 or np.any(one.gradient)


@pytest.mark.parametrize("architecture", CASES.values(), ids=CASES.keys())
def test_both_halves_give_the_bits_of_the_whole(backend: str, architecture: Architecture) -> None:
    assert_the_bits_of_the_whole(backend, architecture.whole, input_gradient=True)


@pytest.mark.parametrize("input_gradient", [False, True])
@pytest.mark.parametrize(
    "span",
    [(0, 1), (0, 4), (1, 4), (2, 3), (3, 4), (4, 8), (4, 5), (5, 14)],
    ids=lambda span: "{} to {}".format(*span),
)
def test_segments_of_any_cut_give_the_bits_of_the_whole(
    backend: str, span: tuple[int, int], input_gradient: bool
) -> None:
    # One layer, none with weights, first, last, or between; dropouts within.
    assert_the_bits_of_the_whole(backend, DEEP.segment(*span), input_gradient=input_gradient)


def test_ties_go_where_they_go_in_the_whole(backend: str) -> None:
    segment = network(
        Conv2D(filters=3, kernel=3, padding="same"), ReLU(), MaxPool2D(size=(3, 2), stride=(2, 1)), shape=(2, 9, 7)
    ).whole
    model, rows = build(backend, segment, input_gradient=True), some_rows(segment, 3)
    flat = Rows(np.ones_like(rows.x), rows.masks, rows.output_gradient, rows.labels)
    model.weights[:] = np.round(model.weights * 4)
    model.forward(0, flat.x)
    expected = expect(model, flat)
    close(model, 0, flat, expected, half=True)
    model.backward_weights(0)
    assert_gradient(model, expected.gradient)


@MIDDLE_AND_WHOLE
@pytest.mark.parametrize(
    "order",
    [
        "F1 F2 I1 I2 W2 W1",
        "F1 F2 I2 I1 W2 W1",
        "F1 I1 F2 W1 I2 W2",
        "F0 F1 I0 F2 I1 W0 I2 W1 W2",
        "F1 F2 I1 B2 W1",
        "F1 F2 F3 I3 B1 F1 I2 W3 B1 W2 F2 I2 W2",
    ],
)
def test_halves_of_unequal_slots_stand_in_any_order(backend: str, segment: Segment, order: str) -> None:
    model = build(backend, segment, input_gradient=True)
    opened: dict[str, tuple[Rows, Answer]] = {}
    total = np.zeros(segment.size)
    for number, text in enumerate(order.split()):
        kind, place = text[0], text[1:]
        slot = int(place)
        if kind == "F":
            rows = some_rows(segment, (3, 1, 6, 2, 5)[number % 5], seed=number)
            opened[place] = rows, expect(model, rows)
            model.forward(slot, rows.x, rows.masks)
        elif kind == "I":
            close(model, slot, *opened[place], half=True)
        else:
            rows, expected = opened.pop(place)
            if kind == "W":
                model.backward_weights(slot)
            else:
                whole(model, slot, rows)
            total += expected.gradient
        assert_gradient(model, total)


@MIDDLE_AND_WHOLE
def test_a_half_out_of_place_is_refused_and_changes_nothing(backend: str, segment: Segment) -> None:
    model, rows = build(backend, segment), some_rows(segment, 3)
    expected = expect(model, rows)
    with pytest.raises(KeyError):
        model.backward_weights(1)
    with pytest.raises(KeyError):
        close(model, 1, rows, expected, half=True)
    model.forward(1, rows.x, rows.masks)
    with pytest.raises(KeyError):
        model.backward_weights(1)
    close(model, 1, rows, expected, half=True)
    with pytest.raises(ValueError, match="slot 1 is open already"):
        model.forward(1, rows.x, rows.masks)
    for again in (partial(close, half=True), close):
        with pytest.raises(KeyError):
            again(model, 1, rows, expected)
    model.backward_weights(1)
    assert_gradient(model, expected.gradient)
    with pytest.raises(KeyError):
        model.backward_weights(1)
    model.forward(1, rows.x, rows.masks)  # closed, it can be opened again


@MIDDLE_AND_WHOLE
def test_arrays_of_the_caller_and_those_returned_stay_as_they_are(backend: str, segment: Segment) -> None:
    model, rows = build(backend, segment, input_gradient=True), some_rows(segment, 4)
    given = [rows.x, rows.output_gradient, rows.labels, *rows.masks]
    given.append(model.forward(0, rows.x, rows.masks))
    copies = [array.copy() for array in given]
    found = close(model, 0, rows, expect(model, rows), half=True)
    kept = found.copy()
    model.backward_weights(0)
    assert all(np.array_equal(array, copy) for array, copy in zip(given, copies, strict=True))
    assert np.array_equal(found, kept)


def test_weights_updated_in_place_are_seen(backend: str) -> None:
    model, rows = build(backend, DEEP.whole, input_gradient=True), some_rows(DEEP.whole, 3)
    for _ in range(3):
        model.gradient.fill(0.0)
        expected = expect(model, rows)
        model.forward(0, rows.x, rows.masks)
        close(model, 0, rows, expected, half=True)
        model.backward_weights(0)
        assert_gradient(model, expected.gradient)
        model.weights -= 0.1 * model.gradient
