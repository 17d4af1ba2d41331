"""An architecture is a checked list of layer specs; a segment is a run of its layers that one rank builds.

Both are plain frozen data, so that a strategy can cut, compare and send them without any framework.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from hpcnn.errors import NetworkError
from hpcnn.network.fields import is_whole
from hpcnn.network.layers import (
    Dense,
    Dropout,
    Flatten,
    Layer,
    Softmax,
    layer_from_dict,
    layer_to_dict,
    refuse_batch_normalisation,
)
from hpcnn.network.native import Native
from hpcnn.network.parameters import Parameter, layer_parameters
from hpcnn.network.shapes import Shape, output_shape

__all__ = ["Architecture", "DropoutSite", "Parameter", "Segment"]


class DropoutSite(NamedTuple):
    """A dropout layer of a segment: what its mask depends on, besides seed, epoch and file row."""

    layer: str
    layer_index: int
    """Position in the architecture, not in the segment."""
    shape: Shape
    rate: float


@dataclass(frozen=True)
class Architecture:
    """A whole network for inputs of (channels, height, width), ending in a dense layer and softmax.

    Layers without a name get one; shapes are checked on construction (NetworkError naming the layer).
    """

    name: str
    input_shape: Shape
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "input_shape", _checked_input_shape(self.name, self.input_shape))
        object.__setattr__(self, "layers", named_layers(self.name, self.layers))
        _check_head(self.name, self.layers)
        _ = self.shapes

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The output shape of each layer for one sample."""
        shapes: list[Shape] = []
        for layer in self.layers:
            shapes.append(output_shape(layer, shapes[-1] if shapes else self.input_shape))
        return tuple(shapes)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every tensor in canonical order: layers in order, kernel before bias."""
        parameters: list[Parameter] = []
        for index, layer in enumerate(self.layers):
            offset = parameters[-1].stop if parameters else 0
            parameters.extend(layer_parameters(layer, index, self.layer_input_shape(index), offset))
        return tuple(parameters)

    def layer_input_shape(self, index: int) -> Shape:
        """The input shape of layer `index` for one sample."""
        return self.shapes[index - 1] if index else self.input_shape

    @property
    def size(self) -> int:
        """Number of float32 in the flat vector of weights."""
        return self.parameters[-1].stop

    @property
    def num_classes(self) -> int:
        return self.shapes[-1][0]

    @property
    def whole(self) -> Segment:
        return self.segment(0, len(self.layers))

    def segment(self, start: int, stop: int) -> Segment:
        """Layers start to stop - 1."""
        return Segment(self, start, stop)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` gives back an equal architecture."""
        layers = [layer_to_dict(layer) for layer in self.layers]
        return {"name": self.name, "input_shape": list(self.input_shape), "layers": layers}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Architecture:
        if missing := {"name", "input_shape", "layers"} - set(values):
            raise NetworkError(f"architecture: {min(missing)!r} is missing; it needs name, input_shape and layers")
        layers = tuple(layer_from_dict(layer) for layer in values["layers"])
        return cls(values["name"], values["input_shape"], layers)


@dataclass(frozen=True)
class Segment:
    """Layers start to stop - 1 of an architecture; its vector is a contiguous slice of the architecture's."""

    architecture: Architecture
    start: int
    stop: int

    def __post_init__(self) -> None:
        count = len(self.architecture.layers)
        if not 0 <= self.start < self.stop <= count:
            raise NetworkError(
                f"network {self.architecture.name!r}: layers {self.start} to {self.stop} are no segment; "
                f"it needs 0 <= start < stop <= {count}"
            )

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.architecture.layers[self.start : self.stop]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The output shape of each of its layers for one sample."""
        return self.architecture.shapes[self.start : self.stop]

    @property
    def input_shape(self) -> Shape:
        return self.architecture.layer_input_shape(self.start)

    @property
    def output_shape(self) -> Shape:
        return self.shapes[-1]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its tensors; offsets count from the segment's first float."""
        return tuple(parameter.moved(-self.offset) for parameter in self._own)

    @property
    def size(self) -> int:
        return sum(parameter.size for parameter in self._own)

    @cached_property
    def offset(self) -> int:
        """Where its first float is in the architecture's vector."""
        return sum(p.size for p in self.architecture.parameters if p.layer_index < self.start)

    @property
    def is_first(self) -> bool:
        return self.start == 0

    @property
    def is_last(self) -> bool:
        return self.stop == len(self.architecture.layers)

    @cached_property
    def dropouts(self) -> tuple[DropoutSite, ...]:
        return tuple(
            DropoutSite(layer.name, index, shape, layer.rate)
            for index, (layer, shape) in enumerate(zip(self.layers, self.shapes, strict=True), start=self.start)
            if isinstance(layer, Dropout)
        )

    @property
    def _own(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.architecture.parameters if self.start <= p.layer_index < self.stop)


def _checked_input_shape(network: str, shape: Any) -> Shape:
    if not isinstance(shape, Sequence) or len(shape) != 3 or not all(is_whole(length, 1) for length in shape):
        raise NetworkError(
            f"network {network!r}: input shape is {shape!r}; it must be (channels, height, width), each at least 1"
        )
    return tuple(int(length) for length in shape)


def named_layers(network: str, layers: Iterable[object]) -> tuple[Layer, ...]:
    """The layers, each with a name: those of its kind are numbered; flatten and softmax only from the second on."""
    named: list[Layer] = []
    counts: Counter[str] = Counter()
    for position, layer in enumerate(layers, start=1):
        if not isinstance(layer, Layer):
            refuse_batch_normalisation(type(layer).__name__)
            raise NetworkError(f"network {network!r}: layer {position} is {layer!r}; it must be a layer spec")
        counts[layer.short] += 1
        number = counts[layer.short]
        bare = number == 1 and isinstance(layer, Flatten | Softmax)
        named.append(layer if layer.name else replace(layer, name=layer.short + ("" if bare else str(number))))
    if repeated := [name for name, count in Counter(layer.name for layer in named).items() if count > 1]:
        raise NetworkError(f"network {network!r}: two layers are named {repeated[0]!r}; give each its own name")
    return tuple(named)


def _check_head(network: str, layers: tuple[Layer, ...]) -> None:
    if len(layers) < 2 or not (isinstance(layers[-2], Dense | Native) and isinstance(layers[-1], Softmax)):
        end = ", ".join(layer.label for layer in layers[-2:]) or "nothing"
        raise NetworkError(
            f"network {network!r}: it ends in {end}; it must end in a dense (or a native) and a softmax layer"
        )
    for layer in layers[:-1]:
        if isinstance(layer, Softmax):
            raise NetworkError(
                f"{layer.label}: softmax is the loss head and can only be the last layer; use tanh or relu"
            )
