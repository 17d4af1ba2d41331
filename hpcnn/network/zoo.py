"""The networks that come with the suite, by name, with the settings that their history documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hpcnn.errors import NetworkError
from hpcnn.network.architecture import Architecture
from hpcnn.network.layers import Conv2D, Dense, Dropout, Flatten, Layer, MaxPool2D, ReLU, Softmax
from hpcnn.network.shapes import Shape

Layers = tuple[Layer, ...]
_NETWORKS: dict[str, Network] = {}


@dataclass(frozen=True)
class Network:
    """An entry of the zoo. `history` holds the documented training settings under the names of the command's flags."""

    name: str
    build: Callable[[Shape, int], Architecture]
    history: Mapping[str, Any]
    summary: str


def register_network(
    name: str, *, history: Mapping[str, Any]
) -> Callable[[Callable[[Shape, int], Architecture]], Callable[[Shape, int], Architecture]]:
    """Put a function (input shape, number of classes) -> Architecture into the zoo; its docstring is the summary."""

    def register(build: Callable[[Shape, int], Architecture]) -> Callable[[Shape, int], Architecture]:
        if name in _NETWORKS:
            raise ValueError(f"network {name!r} is registered twice")
        _NETWORKS[name] = Network(name, build, MappingProxyType(dict(history)), (build.__doc__ or "").strip())
        return build

    return register


def networks() -> tuple[Network, ...]:
    """All entries, by name."""
    return tuple(_NETWORKS[name] for name in sorted(_NETWORKS))


def find_network(name: str) -> Network:
    """The entry of that name; NetworkError that lists the choices for an unknown one."""
    if name not in _NETWORKS:
        raise NetworkError(
            f"network {name!r} is unknown; choose one of {', '.join(sorted(_NETWORKS))}, or give a file NETWORK.toml"
        )
    return _NETWORKS[name]


@register_network(
    "cnn2d_3layer_fullconnected_3layer",
    history={
        "optimizer": "sgd",
        "learning_rate": 0.05,
        "momentum": 0.9,
        "nesterov": True,
        "decay": 1e-6,
        "global_batch": 1000,
        "epochs": 10,
        "validation_fraction": 0.2,
    },
)
def cnn2d_3layer_fullconnected_3layer(input_shape: Shape, num_classes: int) -> Architecture:
    """Three 3x3 convolutions (32, 48, 32) and three dense layers (128, 128, classes), dropout 0.25."""

    def convolution(filters: int) -> Layers:
        return Conv2D(filters=filters, kernel=3, padding="same", kernel_initialiser="lecun_uniform"), ReLU()

    def dense(units: int) -> Layers:
        return Dense(units=units, kernel_initialiser="lecun_uniform"), ReLU(), Dropout(rate=0.25)

    layers = (
        *convolution(32),
        *convolution(48),
        MaxPool2D(size=2),
        *convolution(32),
        MaxPool2D(size=2),
        Flatten(),
        *dense(128),
        *dense(128),
        Dense(units=num_classes, kernel_initialiser="lecun_uniform"),
        Softmax(),
    )
    return Architecture("cnn2d_3layer_fullconnected_3layer", input_shape, layers)


@register_network(
    "cnn2d_2layer_fullconnected_2layer",
    history={"optimizer": "adam", "learning_rate": 5e-4, "global_batch": 50},
)
def cnn2d_2layer_fullconnected_2layer(input_shape: Shape, num_classes: int) -> Architecture:
    """Two 5x5 convolutions (32, 64), each pooled, and two dense layers (1024, classes), dropout 0.5."""

    def convolution(filters: int) -> Layers:
        return Conv2D(filters=filters, kernel=5, padding="same"), ReLU(), MaxPool2D(size=2)

    layers = (
        *convolution(32),
        *convolution(64),
        Flatten(),
        Dense(units=1024),
        ReLU(),
        Dropout(rate=0.5),
        Dense(units=num_classes),
        Softmax(),
    )
    return Architecture("cnn2d_2layer_fullconnected_2layer", input_shape, layers)


@register_network(
    "cnn2d_2layer_fullconnected_3layer",
    history={"optimizer": "adam", "learning_rate": 1e-4, "global_batch": 128},
)
def cnn2d_2layer_fullconnected_3layer(input_shape: Shape, num_classes: int) -> Architecture:
    """Two 5x5 convolutions (64, 128), each pooled, and three wide dense layers (4096, 4096, classes), dropout 0.5."""

    def convolution(filters: int) -> Layers:
        kernels = Conv2D(filters=filters, kernel=5, padding="same", kernel_initialiser="he_uniform")
        return kernels, ReLU(), MaxPool2D(size=2)

    def dense(units: int) -> Layers:
        return Dense(units=units, kernel_initialiser="he_uniform"), ReLU(), Dropout(rate=0.5)

    layers = (
        *convolution(64),
        *convolution(128),
        Flatten(),
        *dense(4096),
        *dense(4096),
        Dense(units=num_classes, kernel_initialiser="he_uniform"),
        Softmax(),
    )
    return Architecture("cnn2d_2layer_fullconnected_3layer", input_shape, layers)
