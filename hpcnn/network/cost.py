"""What a layer costs, before anything runs: where the arithmetic is and where the traffic is."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hpcnn.network.architecture import Architecture
from hpcnn.network.layers import Conv2D, Dense, Flatten, Layer, Pool2D, Softmax
from hpcnn.network.shapes import Shape

FLOAT32_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """`flops` and `activation_bytes` are those of one sample; `gradient_bytes` is what a reduction moves a step."""

    layer: str
    type: str
    output_shape: Shape
    parameters: int
    gradient_bytes: int
    flops: int
    activation_bytes: int
    """Size of its output: what a pipeline cut after it sends."""


def layer_costs(architecture: Architecture) -> tuple[LayerCost, ...]:
    """One entry a layer, in order."""
    parameters = dict.fromkeys((layer.name for layer in architecture.layers), 0)
    for parameter in architecture.parameters:
        parameters[parameter.layer] += parameter.size
    return tuple(
        LayerCost(
            layer=layer.name,
            type=layer.type_name,
            output_shape=shape,
            parameters=parameters[layer.name],
            gradient_bytes=FLOAT32_BYTES * parameters[layer.name],
            flops=forward_flops(layer, architecture.layer_input_shape(index), shape),
            activation_bytes=FLOAT32_BYTES * prod(shape),
        )
        for index, (layer, shape) in enumerate(zip(architecture.layers, architecture.shapes, strict=True))
    )


def forward_flops(layer: Layer, input_shape: Shape, output_shape: Shape) -> int:
    """Floating point operations of one sample's forward.

    A multiply-add counts as two, a bias as one more an output, padding as if it were data; an element-wise function as
    one an element, softmax as three (exponential, sum, division), a pool as one for each element of each window.
    """
    outputs = prod(output_shape)
    match layer:
        case Conv2D():
            return outputs * (2 * input_shape[0] // layer.groups * prod(layer.kernel) + 1)
        case Dense():
            return outputs * (2 * prod(input_shape) + 1)
        case Pool2D():
            return outputs * prod(layer.size)
        case Softmax():
            return 3 * outputs
        case Flatten():
            return 0
    return outputs
