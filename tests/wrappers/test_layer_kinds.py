"""Every layer in the shapes that frameworks disagree about: odd sizes, padding, strides, groups, few channels."""

from __future__ import annotations

from typing import Any

import pytest

from hpcnn.network import (
    Architecture,
    AveragePool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    MaxPool2D,
    ReLU,
    Tanh,
)
from tests.wrappers.backends import EVERY_BACKEND
from tests.wrappers.probes import DEEP, assert_answers, assert_near, build, expect, network, some_rows
from tests.wrappers.segment_reference import Rows

CASES: dict[str, Architecture] = {
    "all kinds": DEEP,
    "dense alone": network(),
    "hidden dense": network(Flatten(), Dense(units=5), ReLU(), Dense(units=4), Tanh()),
    "convolution, valid": network(Conv2D(filters=5, kernel=3)),
    "convolution, one kernel position": network(Conv2D(filters=5, kernel=1)),
    "convolution, kernel as large as the image": network(Conv2D(filters=5, kernel=(7, 6))),
    "convolution, one channel": network(Conv2D(filters=5, kernel=3, padding="same"), shape=(1, 7, 6)),
    "convolution, one channel, one filter": network(Conv2D(filters=1, kernel=3, padding="same"), shape=(1, 7, 6)),
    "convolution, three channels": network(Conv2D(filters=5, kernel=3, padding="same"), shape=(3, 5, 8)),
    "convolution, same, even kernel": network(Conv2D(filters=5, kernel=(2, 4), padding="same")),
    "convolution, same, stride 2, odd and even length": network(
        Conv2D(filters=5, kernel=3, stride=2, padding="same"), shape=(2, 7, 8)
    ),
    "convolution, same, even kernel, stride 2": network(
        Conv2D(filters=5, kernel=(4, 2), stride=2, padding="same"), shape=(2, 7, 8)
    ),
    "convolution, same, even kernel, stride 2, one channel": network(
        Conv2D(filters=5, kernel=4, stride=2, padding="same"), shape=(1, 9, 12)
    ),
    "convolution, same, even kernel, unequal strides, three channels": network(
        Conv2D(filters=5, kernel=(2, 6), stride=(2, 3), padding="same"), shape=(3, 11, 7)
    ),
    "convolution, same, even kernel above the image": network(
        Conv2D(filters=5, kernel=(6, 4), padding="same"), shape=(2, 3, 2)
    ),
    "convolution, same, stride above the kernel": network(Conv2D(filters=5, kernel=1, stride=3, padding="same")),
    "convolution, explicit padding": network(Conv2D(filters=5, kernel=3, padding=(2, 1))),
    "convolution, one-sided padding": network(Conv2D(filters=5, kernel=2, stride=2, padding=((1, 0), (0, 2)))),
    "convolution, padding above the kernel": network(Conv2D(filters=5, kernel=2, padding=((3, 0), (0, 4)))),
    "convolution, unequal strides": network(Conv2D(filters=5, kernel=(3, 2), stride=(2, 3))),
    "convolution, rows left over": network(Conv2D(filters=2, kernel=(2, 3), stride=(4, 2))),
    "convolution, groups": network(Conv2D(filters=6, kernel=3, groups=2, padding="same")),
    "convolution, a group a channel": network(Conv2D(filters=8, kernel=3, groups=4, padding="same")),
    "convolution, groups, one-sided padding": network(Conv2D(filters=4, kernel=2, groups=2, padding=((0, 1), (1, 0)))),
    "convolution, groups, same, even kernel, stride 2": network(
        Conv2D(filters=6, kernel=(2, 4), stride=2, groups=3, padding="same"), shape=(3, 7, 10)
    ),
    "convolution, groups, kernel of one, stride 2": network(Conv2D(filters=4, kernel=1, stride=2, groups=2)),
    "three pools that floor": network(
        Conv2D(filters=4, kernel=3, padding="same"),
        MaxPool2D(),
        ReLU(),
        AveragePool2D(),
        MaxPool2D(),
        shape=(1, 28, 31),
    ),
    "max pool, rows left over": network(MaxPool2D(size=2), shape=(3, 7, 5)),
    "max pool, overlapping": network(MaxPool2D(size=(3, 2), stride=(2, 1))),
    "max pool, stride above the size": network(MaxPool2D(size=2, stride=3)),
    "max pool, the whole image": network(MaxPool2D(size=(7, 6))),
    "average pool, rows left over": network(AveragePool2D(size=(2, 3)), shape=(3, 7, 5)),
    "average pool, rows left over by its stride": network(AveragePool2D(size=2, stride=(3, 4)), shape=(3, 9, 13)),
    "average pool, overlapping": network(AveragePool2D(size=3, stride=1)),
    "average pool, stride above the size": network(AveragePool2D(size=2, stride=3)),
    "average pool, unequal strides": network(AveragePool2D(size=(2, 3), stride=(3, 2))),
    "relu": network(Conv2D(filters=5, kernel=3), ReLU()),
    "tanh": network(Conv2D(filters=5, kernel=3), Tanh()),
    "relu of the image": network(ReLU()),
    "tanh of the image": network(Tanh(), shape=(1, 5, 9)),
    "dropout of the image": network(Dropout(rate=0.4)),
    "dropout after a pool": network(Conv2D(filters=5, kernel=3), MaxPool2D(), Dropout(rate=0.4), ReLU()),
    "dropout after dense": network(Flatten(), Dense(units=20), Dropout(rate=0.4), ReLU()),
    "dropout of rate 0": network(Dropout(rate=0.0)),
    "two dropouts": network(Dropout(rate=0.1), Flatten(), Dense(units=9), Dropout(rate=0.6)),
    "flatten to one unit a channel": network(MaxPool2D(size=(7, 6)), Flatten(), Dense(units=3), Tanh()),
    "one pixel": network(Conv2D(filters=5, kernel=3, padding="same"), shape=(3, 1, 1)),
    "one column": network(Conv2D(filters=5, kernel=(3, 1), padding="same"), MaxPool2D(size=(2, 1)), shape=(2, 9, 1)),
}
EVERY_CASE = pytest.mark.parametrize("architecture", CASES.values(), ids=CASES.keys())


@EVERY_BACKEND
@EVERY_CASE
def test_loss_gradients_and_inference_equal_the_reference(backend: str, architecture: Architecture) -> None:
    model = build(backend, architecture.whole, input_gradient=True)
    for count in (5, 1):
        rows = some_rows(architecture.whole, count, seed=count)
        assert_answers(model, rows)
        plain = Rows(rows.x, [mask * 0 + 1 for mask in rows.masks], rows.output_gradient, rows.labels)
        assert_near(model.infer(rows.x), expect(model, plain).output)


@EVERY_BACKEND
def test_a_mask_of_zeros_stops_the_gradient_and_an_uneven_one_passes_in_proportion(backend: str) -> None:
    # Masks are inputs: a wrapper multiplies by what it is given, and draws nothing of its own.
    architecture = network(Conv2D(filters=5, kernel=3), Dropout(rate=0.5), Flatten(), Dense(units=4), Dropout(rate=0.5))
    rows = some_rows(architecture.whole, 4)
    own: list[Any] = [mask.copy() for mask in rows.masks]
    own[0][0] = 0.0
    own[0][1] *= 3.0
    own[1][2, 1:] = 0.0
    model = build(backend, architecture.whole, input_gradient=True)
    assert_answers(model, Rows(rows.x, own, rows.output_gradient, rows.labels))


@EVERY_BACKEND
@pytest.mark.parametrize("given", [0, 1, 3])
def test_another_number_of_masks_than_of_dropouts_is_refused(backend: str, given: int) -> None:
    architecture = network(Dropout(rate=0.1), Flatten(), Dense(units=9), Dropout(rate=0.6))
    rows = some_rows(architecture.whole, 2)
    model = build(backend, architecture.whole)
    with pytest.raises(ValueError, match=f"2 dropouts.*{given}"):
        model.forward(0, rows.x, [rows.masks[0]] * given)
