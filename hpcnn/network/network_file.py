"""A network of one's own from a TOML file, and the one place that turns a name or a file into an architecture.

[network]
name = "small"              # optional: the file's name by default

[[layer]]
type = "convolution"        # and the keys of that layer spec
filters = 8
kernel = 3
padding = "same"

[[layer]]
type = "flatten"

[[layer]]
type = "dense"
units = "classes"           # as many as the data have, also inside a native layer's tables

[[layer]]
type = "softmax"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcnn.errors import NetworkError
from hpcnn.network.architecture import Architecture, named_layers
from hpcnn.network.layers import Layer, layer_from_dict
from hpcnn.network.native import Complete, complete_natives
from hpcnn.network.shapes import Shape
from hpcnn.network.zoo import find_network

SIZED = ("units", "arguments", "parameters", "output_shape")
"""Keys of a layer in which "classes" stands for their number."""


def get_network(
    name_or_path: str | Path, input_shape: Shape, num_classes: int, complete: Complete | None = None
) -> Architecture:
    """The architecture of a zoo network or of a TOML file (anything that ends in .toml), whose native layers may need
    to be completed by their framework.

    NetworkError: an unknown name, a file that is missing or wrong, a network with another number of classes.
    """
    if str(name_or_path).endswith(".toml"):
        architecture = read_network(Path(name_or_path), input_shape, num_classes, complete)
    else:
        architecture = find_network(str(name_or_path)).build(input_shape, num_classes)
    if architecture.num_classes != num_classes:
        raise NetworkError(
            f"network {architecture.name!r} ends in {architecture.num_classes} classes but the data have "
            f'{num_classes}; write units = "classes" in its last dense layer'
        )
    return architecture


def read_network(path: Path, input_shape: Shape, num_classes: int, complete: Complete | None = None) -> Architecture:
    """The architecture that a TOML file describes; errors name the file and the layer."""
    content = _content(path)
    header, entries = content.get("network", {}), content.get("layer")
    if unknown := sorted(set(content) - {"network", "layer"}):
        raise NetworkError(f"{path}: unknown table {unknown[0]!r}; known are network and layer")
    if not isinstance(header, Mapping) or (unknown := sorted(set(header) - {"name"})):
        raise NetworkError(f"{path}: the table [network] holds only the key name; layers are [[layer]] tables")
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise NetworkError(f"{path}: it has no layers; give each as a [[layer]] table with a type")
    try:
        layers = [_layer(position, entry, num_classes) for position, entry in enumerate(entries, start=1)]
        name = str(header.get("name", path.stem))
        completed = complete_natives(named_layers(name, layers), input_shape, complete)
        return Architecture(name, input_shape, tuple(completed))
    except NetworkError as error:
        raise NetworkError(f"{path}: {error}") from None


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NetworkError(f"{path}: cannot be read ({error.strerror}); give the path of a network file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NetworkError(f"{path}: is not TOML ({error}); mend it there") from None


def _layer(position: int, entry: Mapping[str, Any], num_classes: int) -> Layer:
    try:
        sized = {key: _with_classes(entry[key], num_classes) for key in SIZED if key in entry}
        return layer_from_dict({**entry, **sized})
    except NetworkError as error:
        raise NetworkError(f"layer {position}: {error}") from None


def _with_classes(value: Any, num_classes: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_classes(one, num_classes) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_classes(one, num_classes) for one in value]
    return num_classes if value == "classes" else value
