"""What Caffe does otherwise, and what keeps it from ending the process."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.errors import BackendError
from hpcnn.network import Architecture, Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU, Tanh
from hpcnn.network.network_file import get_network
from hpcnn.wrappers.registry import open_backend
from tests.wrappers.probes import DEEP, MIDDLE, assert_answers, build, network, some_rows, some_weights
from tests.wrappers.segment_reference import Rows

pytestmark = pytest.mark.needs("caffe")


def prototxt(architecture: Architecture, file: str = "train.prototxt", **options: Any) -> str:
    return build("caffe", architecture.whole, **options).files()[file]


def layers_of(text: str) -> list[tuple[str, str, list[str], list[str]]]:
    """Name, type, bottoms and tops of each layer."""
    found = []
    for part in text.split("layer {\n")[1:]:
        fields = re.findall(r'^  (\w+): "(.*)"$', part, re.MULTILINE)
        of: dict[str, list[str]] = {"name": [], "type": [], "bottom": [], "top": []}
        for name, value in fields:
            of[name].append(value)
        found.append((of["name"][0], of["type"][0], of["bottom"], of["top"]))
    return found


def test_the_network_can_be_read_as_prototxt() -> None:
    architecture = network(
        Conv2D(filters=4, kernel=3, padding="same"), ReLU(), MaxPool2D(), Dropout(rate=0.5), Flatten(), Dense(units=5),
        ReLU(),
    )  # fmt: skip
    assert layers_of(prototxt(architecture)) == [
        ("data", "Input", [], ["data"]),
        ("dropout1/mask", "Input", [], ["dropout1/mask"]),
        ("conv1", "Convolution", ["data"], ["conv1"]),
        ("pool1", "Pooling", ["conv1"], ["pool1"]),
        ("relu1", "ReLU", ["pool1"], ["relu1"]),
        ("dropout1", "Eltwise", ["relu1", "dropout1/mask"], ["dropout1"]),
        ("flatten", "Flatten", ["dropout1"], ["flatten"]),
        ("dense1", "InnerProduct", ["flatten"], ["dense1"]),
        ("relu2", "ReLU", ["dense1"], ["dense1"]),
        ("flatten2", "Flatten", ["dense1"], ["flatten2"]),
        ("dense2", "InnerProduct", ["flatten2"], ["dense2"]),
    ]
    deployed = layers_of(prototxt(architecture, "deploy.prototxt"))
    assert [name for name, *_ in deployed if "dropout" in name] == []
    assert ("flatten", "Flatten", ["relu1"], ["flatten"]) in deployed


def test_data_gets_a_gradient_only_where_it_is_wanted() -> None:
    assert "force_backward" not in prototxt(DEEP)
    assert "force_backward: true" in prototxt(DEEP, input_gradient=True)


def test_any_name_of_a_layer_and_of_a_network_will_do() -> None:
    layers = (Conv2D(filters=2, kernel=2, name="data"), Tanh(name="data_"), Flatten(), *network().layers[1:])
    architecture = Architecture('a "name"\nof {its} own', (4, 7, 6), layers)
    assert_answers(build("caffe", architecture.whole, input_gradient=True), some_rows(architecture.whole, 3))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_padding_of_unequal_sides_at_every_size(kernel: int, stride: int) -> None:
    for before, after, length in itertools.product((0, 1, 4), (0, 1, 3), (5, 6)):
        layer = Conv2D(filters=2, kernel=(kernel, 2), stride=(stride, 1), padding=((before, after), (0, 1)))
        segment = network(layer, shape=(1, length, 3)).segment(0, 1)
        assert_answers(build("caffe", segment, input_gradient=True), some_rows(segment, 2))


def test_what_is_padded_alike_on_both_sides_is_not_sliced() -> None:
    assert "Slice" not in prototxt(get_network("cnn2d_3layer_fullconnected_3layer", (1, 28, 28), 10))
    assert "Slice" in prototxt(network(Conv2D(filters=2, kernel=2, padding="same")))


def test_each_slot_has_a_net_and_a_closed_one_hands_it_on() -> None:
    model: Any = build("caffe", MIDDLE)
    rows = {count: some_rows(MIDDLE, count) for count in (2, 3, 5)}
    for slot, count in enumerate((2, 3, 2)):
        model.forward(slot, rows[count].x, rows[count].masks)
    first, second, third = (model._slots[slot].net for slot in range(3))
    assert len({first, second, third}) == 3
    for slot, count in ((2, 2), (1, 3), (0, 2)):
        model.backward(slot, rows[count].output_gradient)
    model.forward(7, rows[3].x, rows[3].masks)
    assert model._slots[7].net is second  # the one with room for just these rows
    model.forward(8, rows[5].x, rows[5].masks)
    assert model._slots[8].net in (first, third)


def test_a_pool_that_came_upon_nan_gives_nan_and_writes_nowhere() -> None:
    # Caffe's own answer would be a number like any other, and its backward would write in front of an image's memory.
    architecture = network(Conv2D(filters=3, kernel=1), ReLU(), MaxPool2D(), Conv2D(filters=2, kernel=2), MaxPool2D())
    model = build("caffe", architecture.whole, input_gradient=True)
    rows = some_rows(architecture.whole, 4)
    fine = model.infer(rows.x)
    spoilt = rows.x.copy()
    spoilt[2] = np.nan
    assert np.isnan(model.infer(spoilt)).all(axis=1).tolist() == [False, False, True, False]
    assert np.array_equal(np.delete(model.infer(spoilt), 2, axis=0), np.delete(fine, 2, axis=0))
    logits = model.forward(0, spoilt, rows.masks)
    assert np.isnan(logits[2]).all()
    result = model.loss_backward(0, rows.labels, 4)
    assert np.isnan(result.loss_sum)
    assert result.input_gradient is not None
    assert np.isnan(result.input_gradient).all()
    assert np.isnan(model.gradient).all()
    model.gradient.fill(0.0)
    assert_answers(model, rows)  # the same net, reused


def test_more_rows_than_caffe_can_count_are_refused() -> None:
    segment = network(Conv2D(filters=4096, kernel=1), MaxPool2D(size=(64, 1)), shape=(1, 64, 4096)).segment(0, 2)
    model = build("caffe", segment)
    x = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2, 1, 64, 4096), (0, 0, 0, 0))
    for call in (lambda: model.forward(0, x), lambda: model.infer(x)):
        with pytest.raises(BackendError, match="at most 1 rows of this network at once, not 2: take a smaller batch"):
            call()


def test_layers_that_caffe_cannot_count_are_refused() -> None:
    wide = network(Conv2D(filters=4096, kernel=1), MaxPool2D(size=(1024, 1024)), shape=(1, 1024, 1024)).segment(0, 2)
    with pytest.raises(BackendError, match="a layer has 4294967296 numbers a row"):
        build("caffe", wide)
    unrolled = network(Conv2D(filters=1, kernel=50, padding=25), shape=(1, 1024, 1024)).segment(0, 1)
    with pytest.raises(BackendError, match="cannot build convolution 'conv1': its unrolled input has"):
        build("caffe", unrolled)


def test_threads_are_those_of_the_blas_that_caffe_computes_with() -> None:
    for options, threads, expected in (({}, 2, 2), ({"intra_op_threads": 1}, 2, 1), ({}, 3, 3), ({}, 1, 1)):
        settings = open_backend("caffe", options, threads=threads)(
            MIDDLE, some_weights(MIDDLE), np.zeros(MIDDLE.size, np.float32)
        ).describe()
        assert settings["threads"] == expected
        assert settings["blas"].startswith("OpenBLAS")
        assert settings["caffe"] == "1.0.0"


def test_the_descriptors_of_networks_are_closed() -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    build("caffe", MIDDLE)
    before = count()
    models = [build("caffe", MIDDLE) for _ in range(5)]
    for model in models:
        model.infer(some_rows(MIDDLE, 2).x)
    assert count() == before


def test_ties_in_a_pool_whose_relu_follows_it() -> None:
    # Whole numbers: equal places, zeros, and windows that are negative throughout.
    segment = network(Conv2D(filters=3, kernel=1), ReLU(), MaxPool2D(size=3, stride=2), shape=(2, 9, 7)).segment(0, 3)
    weights = np.round(some_weights(segment) * 4)
    generator = np.random.default_rng(1)
    x = generator.integers(-1, 2, (4, 2, 9, 7)).astype(np.float32)
    slopes = generator.integers(1, 9, (4, *segment.output_shape)).astype(np.float32)
    assert_answers(build("caffe", segment, weights, input_gradient=True), Rows(x, (), slopes, np.zeros(4, int)))
