"""The canonical layout of weights: one flat float32 vector that every backend, reducer and checkpoint shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hpcnn.network.layers import Conv2D, Dense, Layer
from hpcnn.network.native import Native
from hpcnn.network.shapes import Shape

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One tensor in a flat vector: kernel (out, in / groups, height, width) or (out, in), bias (out,), a native
    layer's in the framework's own layout."""

    layer: str
    layer_index: int
    role: str
    """kernel or bias; in a native layer, the framework's own name of it."""
    shape: Shape
    offset: int
    fan_in: int
    fan_out: int
    initialiser: str | None
    """Name of the initialiser, or None where all start at `constant`."""
    constant: float = 0.0
    draw: int = 0
    """Which of its layer's tensors, each of which draws from a stream of its own; a kernel is the first."""

    @property
    def name(self) -> str:
        return f"{self.layer}/{self.role}"

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def stop(self) -> int:
        return self.offset + self.size

    @property
    def span(self) -> slice:
        return slice(self.offset, self.stop)

    def view(self, vector: NDArray[Number]) -> NDArray[Number]:
        """This tensor's part of the flat vector that `offset` counts in, as a view in its shape."""
        return vector[self.span].reshape(self.shape)

    def moved(self, by: int) -> Parameter:
        return replace(self, offset=self.offset + by)


def layer_parameters(layer: Layer, index: int, input_shape: Shape, offset: int) -> Iterator[Parameter]:
    """Kernel, then bias, of a layer that has them; the first begins at `offset`.

    Fans are those of the kernel's own shape, grouped or not, as the frameworks count them.
    """
    match layer:
        case Conv2D():
            kernel: Shape = (layer.filters, input_shape[0] // layer.groups, *layer.kernel)
        case Dense():
            kernel = (layer.units, *input_shape)
        case Native():
            yield from _native_parameters(layer, index, offset)
            return
        case _:
            return
    window = prod(kernel[2:])
    common = Parameter(
        layer=layer.name,
        layer_index=index,
        role="kernel",
        shape=kernel,
        offset=offset,
        fan_in=kernel[1] * window,
        fan_out=kernel[0] * window,
        initialiser=layer.kernel_initialiser,
    )
    yield common
    yield replace(common, role="bias", shape=kernel[:1], offset=common.stop, initialiser=None, constant=layer.bias)


def _native_parameters(layer: Native, index: int, offset: int) -> Iterator[Parameter]:
    for draw, tensor in enumerate(layer.known_parameters()):
        fan_in, fan_out = layer.fans(tensor.shape)
        parameter = Parameter(
            layer=layer.name,
            layer_index=index,
            role=tensor.name,
            shape=tensor.shape,
            offset=offset,
            fan_in=fan_in,
            fan_out=fan_out,
            initialiser=tensor.initialiser,
            constant=tensor.constant,
            draw=draw,
        )
        yield parameter
        offset = parameter.stop
