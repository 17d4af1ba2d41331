from __future__ import annotations

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
    Softmax,
    find_network,
    layer_costs,
)


def test_costs_are_those_worked_by_hand() -> None:
    layers = (
        Conv2D(filters=6, kernel=(3, 5), groups=2),
        ReLU(),
        MaxPool2D(size=2),
        AveragePool2D(size=(1, 3), stride=1),
        Flatten(),
        Dropout(rate=0.5),
        Dense(units=10),
        Softmax(),
    )
    costs = layer_costs(Architecture("x", (4, 8, 12), layers))
    assert [(c.layer, c.type, c.output_shape, c.parameters, c.flops) for c in costs] == [
        # 288 outputs, each 2 x 3 x 5 multiply-adds (two operations each) and a bias; 6 x 2 x 15 weights + 6 biases
        ("conv1", "convolution", (6, 6, 8), 186, 288 * 61),
        ("relu1", "relu", (6, 6, 8), 0, 288),
        ("pool1", "max_pool", (6, 3, 4), 0, 72 * 4),
        ("pool2", "average_pool", (6, 3, 2), 0, 36 * 3),
        ("flatten", "flatten", (36,), 0, 0),
        ("dropout1", "dropout", (36,), 0, 36),
        ("dense1", "dense", (10,), 370, 10 * 73),
        ("softmax", "softmax", (10,), 0, 30),
    ]
    assert [c.gradient_bytes for c in costs] == [4 * c.parameters for c in costs]
    assert [c.activation_bytes for c in costs] == [1152, 1152, 288, 144, 144, 144, 40, 40]


@pytest.mark.parametrize("name", ["cnn2d_3layer_fullconnected_3layer", "cnn2d_2layer_fullconnected_2layer"])
def test_parameters_of_all_layers_are_those_of_the_network(name: str) -> None:
    architecture = find_network(name).build((1, 28, 28), 10)
    costs = layer_costs(architecture)
    assert sum(cost.parameters for cost in costs) == architecture.size
    assert [cost.layer for cost in costs] == [layer.name for layer in architecture.layers]
