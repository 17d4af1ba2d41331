"""The native layer's spec: plain data like any other, complete or waiting for its framework."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hpcnn.errors import NetworkError
from hpcnn.network import Architecture, Conv2D, Dense, Flatten, Native, Softmax, initial_weights, layer_costs
from hpcnn.network.architecture import named_layers
from hpcnn.network.layers import layer_from_dict, layer_to_dict
from hpcnn.network.native import NativeTensor, complete_natives
from hpcnn.network.network_file import read_network

SCALE = Native(
    backend="torch",
    build="mine:Scale",
    arguments={"channels": 4, "names": ["a"]},
    parameters={"weight": {"shape": [4, 2, 3, 3], "initialiser": "he"}, "bias": {"shape": [4], "constant": 0.5}},
    output_shape=[4, 5, 5],
)


def network(native: Native = SCALE) -> Architecture:
    layers = (Conv2D(filters=2, kernel=3), native, Flatten(), Dense(units=3), Softmax())
    return Architecture("own", (1, 7, 7), layers)


def test_a_spec_survives_json_as_a_checkpoint_keeps_it() -> None:
    held = network()
    assert Architecture.from_dict(json.loads(json.dumps(held.to_dict()))) == held
    assert layer_from_dict(json.loads(json.dumps(layer_to_dict(SCALE)))) == SCALE


def test_its_tensors_are_part_of_the_canonical_vector() -> None:
    held = network()
    names = [parameter.name for parameter in held.parameters]
    assert names[2:4] == ["native1/weight", "native1/bias"]
    assert held.parameters[2].shape == (4, 2, 3, 3)
    assert [one.offset for one in held.parameters] == [0, 18, 20, 92, 96, 96 + 300]
    assert held.shapes[1] == (4, 5, 5)
    assert layer_costs(held)[1].parameters == 76


def test_its_tensors_start_as_the_spec_says() -> None:
    held = network()
    weight, bias = (held.parameters[place].view(initial_weights(held, 1)) for place in (2, 3))
    assert np.all(bias == 0.5)
    # He's variance for a fan in of 2 * 9: the uniform bound is sqrt(6 / fan)
    assert np.abs(weight).max() <= np.sqrt(6 / 18)
    assert np.abs(weight).max() > 0.8 * np.sqrt(6 / 18)  # 72 draws: (0.8)^72 = 1e-7 of missing it


def test_two_drawn_tensors_of_a_layer_draw_from_streams_of_their_own() -> None:
    twice = Native(backend="torch", build="mine:Two", parameters=[["a", [30], "he"], ["b", [30], "he"]])
    held = Architecture("own", (1, 5, 6), (Flatten(), twice, Dense(units=3), Softmax()))
    first, second = (parameter.view(initial_weights(held, 1)) for parameter in held.parameters[:2])
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("backend", ["torch", "caffe", "lasagne", "tensorflow", "keras"])
def test_fans_are_counted_in_the_frameworks_order_of_axes(backend: str) -> None:
    layer = Native(backend=backend, build="mine:Any")
    if backend in ("tensorflow", "keras"):
        assert layer.fans((1, 2, 4, 3)) == (8, 6)  # window 1 x 2, in 4, out 3
    else:
        assert layer.fans((4, 3, 3, 3)) == (27, 36)  # out 4, in 3, window 3 x 3
    assert layer.fans((4, 3)) == ((3, 4) if backend in ("torch", "caffe") else (4, 3))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backend": ""}, "backend is ''"),
        ({"build": 3}, "build is 3"),
        ({"arguments": [1]}, r"arguments is \[1\]"),
        ({"arguments": {"f": print}}, "arguments is .*plain values"),
        ({"parameters": {"a b": {"shape": [1]}}}, "parameters is 'a b'"),
        ({"parameters": {"a": {"size": [1]}}}, "a table with shape"),
        ({"parameters": {"a": {"shape": [0]}}}, r"parameters.a.shape is \[0\]"),
        ({"parameters": {"a": {"shape": [1], "initialiser": "zufall"}}}, "native: initialiser 'zufall' is unknown"),
        ({"parameters": {"a": {"shape": [1], "constant": float("nan")}}}, "parameters.a.constant is nan"),
        ({"output_shape": "classes"}, "output_shape is 'classes'"),
    ],
)
def test_a_wrong_value_is_refused_by_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(NetworkError, match=words):
        Native(**{"backend": "torch", "build": "mine:Any", **settings})


def test_a_spec_that_waits_for_its_framework_says_so_where_it_cannot_wait() -> None:
    with pytest.raises(NetworkError, match=r"native 'native1': its parameters are not known.*--backend torch"):
        _ = network(Native(backend="torch", build="mine:Any", output_shape=[4, 5, 5])).parameters


def test_completing_asks_for_each_waiting_layer_with_its_input_shape_and_name() -> None:
    asked: list[tuple[str, tuple[int, ...]]] = []

    def complete(layer: Native, input_shape: tuple[int, ...]) -> Native:
        asked.append((layer.name, input_shape))
        return Native(name=layer.name, backend="torch", build=layer.build, parameters=[], output_shape=[6, 2, 2])

    waiting = Native(backend="torch", build="mine:Any")
    named = named_layers("own", [Conv2D(filters=2, kernel=3), waiting, SCALE, waiting])
    layers = complete_natives(named, (1, 7, 7), complete)
    assert asked == [("native1", (2, 5, 5)), ("native3", (4, 5, 5))]
    assert [layer.name for layer in layers] == ["conv1", "native1", "native2", "native3"]
    assert complete_natives([waiting], (1, 7, 7), None) == [waiting]


FILE = """
[[layer]]
type = "flatten"
[[layer]]
type = "native"
backend = "torch"
build = "torch.nn:Linear"
name = "classes"
arguments = { in_features = 49, out_features = "classes" }
parameters.weight = { shape = ["classes", 49], initialiser = "lecun" }
parameters.bias = { shape = ["classes"] }
output_shape = ["classes"]
[[layer]]
type = "softmax"
"""


def test_a_file_says_classes_inside_a_native_layer_and_ends_in_one(tmp_path: Any) -> None:
    path = tmp_path / "own.toml"
    path.write_text(FILE, encoding="utf-8")
    held = read_network(path, (1, 7, 7), 5)
    layer = held.layers[1]
    assert isinstance(layer, Native)
    assert layer.name == "classes"  # a name stays a name
    assert layer.arguments["out_features"] == 5
    assert layer.parameters == (NativeTensor("weight", (5, 49), "lecun_uniform"), NativeTensor("bias", (5,)))
    assert held.num_classes == 5
