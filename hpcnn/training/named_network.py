"""A network as a person may give it: a name, a file, an architecture, or a list of layer specs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcnn.errors import NetworkError
from hpcnn.network.architecture import Architecture
from hpcnn.network.fields import is_whole
from hpcnn.network.layers import Layer, layer_from_dict
from hpcnn.network.native import Complete, complete_natives
from hpcnn.network.network_file import get_network

LIST_NAME = "custom"
"""What a network that is a list of layers is called in the names of runs."""

GivenNetwork = str | os.PathLike[str] | Architecture | Sequence[Layer | Mapping[str, Any]]


def named_network(
    given: GivenNetwork, input_shape: Any, num_classes: Any, complete: Complete
) -> tuple[str, Architecture]:
    """What settings name it, and the architecture. NetworkError where it, or its shape or classes, do not fit."""
    shape = tuple(input_shape) if isinstance(input_shape, Sequence) else input_shape
    if not isinstance(shape, tuple) or len(shape) != 3 or not all(is_whole(length, 1) for length in shape):
        raise NetworkError(f"input_shape is {input_shape!r}; it must be (channels, height, width), each at least 1")
    if not is_whole(num_classes, 2):
        raise NetworkError(f"num_classes is {num_classes!r}; it must be a whole number, at least 2")
    if isinstance(given, str | os.PathLike):
        name = os.fspath(given)
        return name, get_network(Path(name) if name.endswith(".toml") else name, shape, num_classes, complete)
    architecture = given if isinstance(given, Architecture) else _of_layers(given, shape, complete)
    if (architecture.input_shape, architecture.num_classes) != (shape, num_classes):
        raise NetworkError(
            f"network {architecture.name!r} takes {architecture.input_shape} and ends in {architecture.num_classes} "
            f"classes, but {shape} and {num_classes} were given: mend the one or the other"
        )
    return architecture.name, architecture


def _of_layers(given: Any, input_shape: tuple[int, ...], complete: Complete) -> Architecture:
    if not isinstance(given, Sequence) or not all(isinstance(layer, Layer | Mapping) for layer in given):
        raise NetworkError(
            f"architecture is {given!r}; give a name that `hpcnn networks` lists, a network file, an Architecture or a "
            "list of layer specs"
        )
    layers = [layer if isinstance(layer, Layer) else layer_from_dict(layer) for layer in given]
    return Architecture(LIST_NAME, input_shape, tuple(complete_natives(layers, input_shape, complete)))
