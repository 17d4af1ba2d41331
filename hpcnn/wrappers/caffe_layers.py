"""A segment as a Caffe network, in which every layer means what it means elsewhere (rule 2).

    pools          floor (`ceil_mode: false`), else Caffe starts a window wherever a part of one fits
    padding        Caffe pads both sides alike: where they differ it is given whole strides more than the first side
                   wants, and the windows that nobody wants are sliced off the output
    ReLU           in place behind what does not need its output to go backward; behind a max pool instead of before it
    dropout        a product with an input of its own, left out of the network for inference
    softmax        not in the network: the loss head starts the backward at the logits

Caffe's ReLU has slope 0 at 0, and its max pools send a gradient to the first maximum, as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from hpcnn.errors import BackendError
from hpcnn.network.architecture import Segment
from hpcnn.network.layers import (
    AveragePool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool2D,
    Pool2D,
    ReLU,
    Softmax,
    Tanh,
)
from hpcnn.network.native import Native
from hpcnn.network.shapes import Shape, output_shape, resolved_padding
from hpcnn.wrappers.caffe_prototxt import MOST_IN_A_BLOB, NetText, OwnText, Word
from hpcnn.wrappers.native import refuse_layer
from hpcnn.wrappers.relus import relus_behind_pools

NativeText = Callable[[Native, Shape], tuple[str, str]]
"""The type of a native layer that takes rows of a shape, and the text of its other fields."""


def training_net(segment: Segment, native: NativeText, *, input_gradient: bool) -> NetText:
    """With an input for each dropout's mask, and a backward that starts at the output."""
    net = _net(segment, native, training=True)
    net.forced = input_gradient
    if net.layers and not input_gradient:
        # Caffe goes backward only from what counts as a loss. What it then takes for the loss, nobody reads.
        net.layers[-1]["loss_weight"] = [float(top == net.output) for top in net.layers[-1]["top"]]
    return net


def inference_net(segment: Segment, native: NativeText) -> NetText:
    """Without dropout."""
    return _net(segment, native, training=False)


def layer_net(name: str, kind: str, fields: str, input_shape: Shape) -> NetText:
    """One layer of a type, which gets every gradient that there is."""
    net = NetText(name + "/data", input_shape, forced=True)
    net.add(name, kind, (), fields=OwnText(fields))
    return net


def _net(segment: Segment, native: NativeText, *, training: bool) -> NetText:
    data, taken = "data", {layer.name for layer in segment.layers}
    while data in taken:
        data += "_"
    net = NetText(data, segment.input_shape)
    shapes = (segment.input_shape, *segment.shapes)
    before: Layer | None = None
    for place in relus_behind_pools(segment.layers):
        layer = segment.layers[place]
        if not isinstance(layer, Softmax) and (training or not isinstance(layer, Dropout)):
            _add(net, layer, shapes[place], before, native)
            before = layer
    if net.largest > MOST_IN_A_BLOB:
        raise BackendError(
            f"network {segment.architecture.name!r}: a layer has {net.largest} numbers a row, and Caffe's have at most "
            f"{MOST_IN_A_BLOB}: make it smaller, or use another backend"
        )
    return net


def _add(net: NetText, layer: Layer, shape: Shape, before: Layer | None, native: NativeText) -> None:
    name, gives = layer.name, output_shape(layer, shape)
    if isinstance(layer, Conv2D):
        _add_convolution(net, layer, shape)
    elif isinstance(layer, Dense):
        net.add(name, "InnerProduct", gives, inner_product_param={"num_output": layer.units})
    elif isinstance(layer, MaxPool2D):
        net.add(name, "Pooling", gives, pooling_param=_pooling(layer, "MAX"))
    elif isinstance(layer, AveragePool2D):
        net.add(name, "Pooling", gives, pooling_param=_pooling(layer, "AVE"))
    elif isinstance(layer, Flatten):
        net.add(name, "Flatten", gives)
    elif isinstance(layer, ReLU):
        net.add(name, "ReLU", gives, top=net.output if isinstance(before, Conv2D | Dense) else name)
    elif isinstance(layer, Tanh):
        net.add(name, "TanH", gives)
    elif isinstance(layer, Dropout):
        mask = f"{name}/mask"
        net.masks.append((mask, shape))
        net.add(name, "Eltwise", gives, more=(mask,), eltwise_param={"operation": Word("PROD")})
    elif isinstance(layer, Native):
        kind, fields = native(layer, shape)
        net.add(name, kind, gives, fields=OwnText(fields))
    else:
        raise refuse_layer("caffe", layer)


def _sides(name: str, pair: Sequence[int]) -> dict[str, int]:
    return {f"{name}_h": pair[0], f"{name}_w": pair[1]}


def _pooling(layer: Pool2D, method: str) -> dict[str, Any]:
    return {"pool": Word(method), **_sides("kernel", layer.size), **_sides("stride", layer.stride), "ceil_mode": False}


class _Axis(NamedTuple):
    """Of a convolution: padding of either side, windows that this gives, and those that are wanted among them."""

    padding: int
    windows: int
    first: int
    stop: int


def _axis(length: int, kernel: int, stride: int, before: int, wanted: int) -> _Axis:
    after = (wanted - 1) * stride + kernel - length - before
    first = max(-(-(after - before) // stride), 0)
    padding = before + first * stride
    return _Axis(padding, (length + 2 * padding - kernel) // stride + 1, first, first + wanted)


def _add_convolution(net: NetText, layer: Conv2D, shape: Shape) -> None:
    wanted, padding = output_shape(layer, shape)[1:], resolved_padding(layer, shape)
    axes = [
        _axis(shape[1 + place], layer.kernel[place], layer.stride[place], padding[place][0], wanted[place])
        for place in range(2)
    ]
    windows = [axis.windows for axis in axes]
    unrolled = prod((shape[0], *layer.kernel, *windows))
    if unrolled > MOST_IN_A_BLOB:
        raise BackendError(
            f"--backend caffe cannot build {layer.label}: its unrolled input has {unrolled} numbers a row, more than "
            f"{MOST_IN_A_BLOB}: make it smaller, or use another backend"
        )
    parameters = {
        "num_output": layer.filters,
        **_sides("kernel", layer.kernel),
        **_sides("stride", layer.stride),
        **_sides("pad", [axis.padding for axis in axes]),
        "group": layer.groups,
    }
    net.add(layer.name, "Convolution", (layer.filters, *windows), convolution_param=parameters)
    for number, (axis, word) in enumerate(zip(axes, ("rows", "columns"), strict=True), start=2):
        _add_slice(net, f"{layer.name}/{word}", number, axis)


def _add_slice(net: NetText, name: str, number: int, axis: _Axis) -> None:
    """The wanted windows along an axis. The others never get a gradient, so theirs stays 0."""
    points = [point for point in (axis.first, axis.stop) if 0 < point < axis.windows]
    if points:
        net.add(name, "Slice", (), slice_param={"axis": number, "slice_point": points})
        before, after = [f"{name}/before"] * (axis.first > 0), [f"{name}/after"] * (axis.stop < axis.windows)
        net.layers[-1]["top"] = [*before, name, *after]
