from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import NetworkError
from hpcnn.network import AveragePool2D, Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU, Softmax, Tanh
from hpcnn.network.layers import LAYER_TYPES, Layer, layer_from_dict, layer_to_dict, layer_type

SIDE = st.integers(1, 9)
SIZES = SIDE | st.tuples(SIDE, SIDE)
AMOUNT = st.integers(0, 9)
PADDINGS = (
    st.sampled_from(["same", "valid"])
    | AMOUNT
    | st.tuples(AMOUNT, AMOUNT)
    | st.tuples(st.tuples(AMOUNT, AMOUNT), st.tuples(AMOUNT, AMOUNT))
)
NAMES = st.from_regex(r"\A[A-Za-z][A-Za-z0-9_.-]{0,5}\Z")
INITIALISERS = st.sampled_from(["lecun_uniform", "he", "glorot_normal"])
BIAS = st.floats(-1, 1)
POOLS = {"name": NAMES, "size": SIZES, "stride": st.none() | SIZES}
LAYERS = st.one_of(
    st.builds(
        lambda groups, multiple, **values: Conv2D(filters=groups * multiple, groups=groups, **values),
        SIDE,
        SIDE,
        name=NAMES,
        kernel=SIZES,
        stride=SIZES,
        padding=PADDINGS,
        kernel_initialiser=INITIALISERS,
        bias=BIAS,
    ),
    st.builds(MaxPool2D, **POOLS),
    st.builds(AveragePool2D, **POOLS),
    st.builds(Dense, name=NAMES, units=SIDE, kernel_initialiser=INITIALISERS, bias=BIAS),
    st.builds(Dropout, name=NAMES, rate=st.floats(0, 1, exclude_max=True)),
    *(st.builds(cls, name=NAMES) for cls in (Flatten, ReLU, Tanh, Softmax)),
)


def test_a_whole_number_stands_for_height_and_width() -> None:
    layer = Conv2D(filters=4, kernel=3, stride=2, padding=1)
    assert (layer.kernel, layer.stride, layer.padding) == ((3, 3), (2, 2), ((1, 1), (1, 1)))
    assert Conv2D(filters=4, kernel=(3, 5), padding=(1, 2)).padding == ((1, 1), (2, 2))
    assert Conv2D(filters=4, kernel=[3, 5], padding=[[1, 0], [2, 3]]).padding == ((1, 0), (2, 3))
    assert type(Conv2D(filters=np.int64(4), kernel=np.int32(3)).kernel[0]) is int


def test_defaults_are_those_of_the_plan() -> None:
    layer = Conv2D(filters=1, kernel=1)
    assert (layer.stride, layer.padding, layer.groups, layer.bias) == ((1, 1), "valid", 1, 0.0)
    assert (layer.kernel_initialiser, Dense(units=1).kernel_initialiser) == ("glorot_uniform", "glorot_uniform")
    assert (MaxPool2D().size, MaxPool2D(size=3).stride, MaxPool2D(size=3, stride=2).stride) == ((2, 2), (3, 3), (2, 2))


def test_short_initialiser_names_are_the_uniform_ones() -> None:
    assert Dense(units=1, kernel_initialiser="he") == Dense(units=1, kernel_initialiser="he_uniform")


@given(LAYERS)
def test_specs_survive_json_pickle_copy_and_replace(layer: Layer) -> None:
    assert layer_from_dict(json.loads(json.dumps(layer_to_dict(layer)))) == layer
    assert pickle.loads(pickle.dumps(layer)) == copy.deepcopy(layer) == replace(layer) == layer
    assert len({layer, replace(layer), replace(layer, name="another_name")}) == 2


def test_specs_are_frozen_and_keyword_only() -> None:
    with pytest.raises(FrozenInstanceError):
        Dense(units=1).units = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Dense(1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="units"):
        Dense()


def test_the_registry_has_every_type_by_its_name() -> None:
    assert {name: cls.__name__ for name, cls in LAYER_TYPES.items()} == {
        "convolution": "Conv2D",
        "max_pool": "MaxPool2D",
        "average_pool": "AveragePool2D",
        "flatten": "Flatten",
        "dense": "Dense",
        "relu": "ReLU",
        "tanh": "Tanh",
        "softmax": "Softmax",
        "dropout": "Dropout",
        "native": "Native",
    }
    with pytest.raises(ValueError, match="'dense' is registered twice"):
        layer_type("dense", short="dense")(Dense)


WHOLE = "it must be a whole number, at least 1"


@pytest.mark.parametrize(
    ("cls", "values", "message"),
    [
        (Conv2D, {"filters": 0, "kernel": 3, "name": "c"}, f"convolution 'c': filters is 0; {WHOLE}"),
        (Conv2D, {"filters": 2.0, "kernel": 3}, f"convolution: filters is 2.0; {WHOLE}"),
        (Conv2D, {"filters": True, "kernel": 3}, f"convolution: filters is True; {WHOLE}"),
        (Conv2D, {"filters": 1, "kernel": (3, 0)}, "convolution: kernel is (3, 0); it must be a whole number or (heig"),
        (
            Conv2D,
            {"filters": 1, "kernel": 3, "stride": "2"},
            "convolution: stride is '2'; it must be a whole number or",
        ),
        (
            Conv2D,
            {"filters": 1, "kernel": 3, "padding": "SAME"},
            "convolution: padding is 'SAME'; it must be \"same\",",
        ),
        (Conv2D, {"filters": 1, "kernel": 3, "padding": -1}, "convolution: padding is -1; it must be"),
        (
            Conv2D,
            {"filters": 1, "kernel": 3, "padding": ((1, 2), 3)},
            "convolution: padding is ((1, 2), 3); it must be",
        ),
        (Conv2D, {"filters": 3, "kernel": 3, "groups": 2}, "filters is 3; it must be a multiple of its 2 groups"),
        (
            Conv2D,
            {"filters": 1, "kernel": 3, "bias": float("nan")},
            "convolution: bias is nan; it must be a finite num",
        ),
        (Dense, {"units": 1, "bias": "0"}, "dense: bias is '0'; it must be a finite number"),
        (Dense, {"units": -3, "name": "d"}, f"dense 'd': units is -3; {WHOLE}"),
        (Dense, {"units": 1, "name": "d/e"}, "dense: name is 'd/e'; use letters, digits"),
        (Dense, {"units": 1, "kernel_initialiser": "zeros"}, "initialiser 'zeros' is unknown; choose one of lecun_uni"),
        (Dense, {"units": 1, "kernel_initialiser": []}, "dense: initialiser [] is unknown"),
        (MaxPool2D, {"size": 0, "name": "p"}, "max_pool 'p': size is 0; it must be a whole number or"),
        (AveragePool2D, {"stride": (1, 2, 3)}, "average_pool: stride is (1, 2, 3); it must be a whole number or"),
        (Dropout, {"rate": 1, "name": "d"}, "dropout 'd': rate is 1; it must be at least 0 and below 1"),
        (Dropout, {"rate": -0.1}, "dropout: rate is -0.1; it must be at least 0 and below 1"),
        (Dropout, {"rate": float("nan")}, "dropout: rate is nan; it must be at least 0 and below 1"),
    ],
)
def test_a_wrong_value_is_refused_with_layer_value_and_rule(cls: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(NetworkError) as caught:
        cls(**values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"type": "lstm"},
            "layer type 'lstm' is unknown; choose one of convolution, max_pool, average_pool, flatten, de",
        ),
        ({}, "layer type None is unknown; choose one of"),
        ({"type": ["dense"]}, "layer type ['dense'] is unknown; choose one of"),
        ({"type": "dense", "unit": 3}, "dense: unknown key 'unit'; known are name, units, kernel_initialiser, bias"),
        ({"type": "convolution", "filters": 3}, "convolution: 'kernel' is missing; give it a value"),
    ],
)
def test_a_wrong_description_is_refused_and_lists_what_is_known(values: dict[str, Any], message: str) -> None:
    with pytest.raises(NetworkError) as caught:
        layer_from_dict(values)
    assert message in str(caught.value)


@pytest.mark.parametrize("spelling", ["batch_normalisation", "BatchNormalization", "batch-norm", "BatchNorm2d", "BN"])
def test_batch_normalisation_is_refused_with_the_reason(spelling: str) -> None:
    with pytest.raises(NetworkError, match=r"statistics over the global batch do not fit rule 1 .a gradient is a sum"):
        layer_from_dict({"type": spelling})
