from __future__ import annotations

import pytest

from hpcnn.errors import NetworkError
from hpcnn.network import Architecture, Conv2D, Dense, Dropout, find_network, networks, register_network

THREE, TWO = "cnn2d_3layer_fullconnected_3layer", "cnn2d_2layer_fullconnected_2layer"
WIDE = "cnn2d_2layer_fullconnected_3layer"
CONV, DENSE = "convolution relu", "dense relu dropout"
TYPES = {
    THREE: f"{CONV} {CONV} max_pool {CONV} max_pool flatten {DENSE} {DENSE} dense softmax",
    TWO: f"{CONV} max_pool {CONV} max_pool flatten {DENSE} dense softmax",
    WIDE: f"{CONV} max_pool {CONV} max_pool flatten {DENSE} {DENSE} dense softmax",
}


def build(name: str) -> Architecture:
    return find_network(name).build((1, 28, 28), 10)


@pytest.mark.parametrize(("name", "parameters"), [(THREE, 246_682), (TWO, 3_274_634), (WIDE, 42_723_082)])
def test_the_networks_have_their_documented_parameter_counts(name: str, parameters: int) -> None:
    assert build(name).size == parameters


@pytest.mark.parametrize("name", TYPES)
def test_the_networks_have_their_documented_layers(name: str) -> None:
    architecture = build(name)
    assert architecture.name == name
    assert [layer.type_name for layer in architecture.layers] == TYPES[name].split()


@pytest.mark.parametrize(
    ("name", "filters", "kernel", "units", "rates", "initialiser"),
    [
        (THREE, [32, 48, 32], (3, 3), [128, 128, 10], [0.25, 0.25], "lecun_uniform"),
        (TWO, [32, 64], (5, 5), [1024, 10], [0.5], "glorot_uniform"),
        (WIDE, [64, 128], (5, 5), [4096, 4096, 10], [0.5, 0.5], "he_uniform"),
    ],
)
def test_the_networks_have_their_documented_sizes_and_start(
    name: str, filters: list[int], kernel: tuple[int, int], units: list[int], rates: list[float], initialiser: str
) -> None:
    layers = build(name).layers
    convolutions = [layer for layer in layers if isinstance(layer, Conv2D)]
    dense = [layer for layer in layers if isinstance(layer, Dense)]
    assert [layer.filters for layer in convolutions] == filters
    assert {(layer.kernel, layer.stride, layer.padding) for layer in convolutions} == {(kernel, (1, 1), "same")}
    assert [layer.units for layer in dense] == units
    assert [layer.rate for layer in layers if isinstance(layer, Dropout)] == rates
    assert {(layer.kernel_initialiser, layer.bias) for layer in [*convolutions, *dense]} == {(initialiser, 0.0)}


def test_the_history_is_the_documented_one_and_read_only() -> None:
    assert dict(find_network(THREE).history) == {
        "optimizer": "sgd",
        "learning_rate": 0.05,
        "momentum": 0.9,
        "nesterov": True,
        "decay": 1e-6,
        "global_batch": 1000,
        "epochs": 10,
        "validation_fraction": 0.2,
    }
    assert dict(find_network(TWO).history) == {"optimizer": "adam", "learning_rate": 5e-4, "global_batch": 50}
    assert dict(find_network(WIDE).history) == {"optimizer": "adam", "learning_rate": 1e-4, "global_batch": 128}
    with pytest.raises(TypeError):
        find_network(TWO).history["epochs"] = 1  # type: ignore[index]


def test_the_list_is_sorted_and_says_what_each_network_is() -> None:
    assert [entry.name for entry in networks()] == [TWO, WIDE, THREE]
    assert all(entry.summary.endswith(".") and "\n" not in entry.summary for entry in networks())


def test_an_unknown_network_lists_the_choices() -> None:
    with pytest.raises(
        NetworkError, match=f"network 'resnet' is unknown; choose one of {TWO}, {WIDE}, {THREE}, or give a file"
    ):
        find_network("resnet")


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match=f"network '{TWO}' is registered twice"):
        register_network(TWO, history={})(find_network(THREE).build)


def test_other_inputs_and_class_counts_fit() -> None:
    architecture = find_network(THREE).build((3, 32, 32), 7)
    assert (architecture.num_classes, architecture.shapes[0]) == (7, (32, 32, 32))
    with pytest.raises(NetworkError, match="max_pool 'pool2': its window of 2 x 2 is larger than its input of 1 x 1"):
        find_network(THREE).build((1, 3, 3), 10)
