"""Layer specs as functions of torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from hpcnn.network.layers import (
    AveragePool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool2D,
    ReLU,
    Softmax,
    Tanh,
)
from hpcnn.network.shapes import resolved_padding
from hpcnn.wrappers.native import refuse_layer

Tensor = torch.Tensor
Apply = Callable[[Tensor], Tensor]


def layer_function(layer: Layer, input_shape: tuple[int, ...], *weights: Tensor) -> Apply | None:
    """The layer as a function of its input, with its kernel and bias; None for dropout, a product with a mask.

    BackendError for a layer that is not known here."""
    if isinstance(layer, Conv2D):
        return _convolution(layer, input_shape, *weights)
    if isinstance(layer, Dense):
        kernel, bias = weights
        return lambda x: F.linear(x, kernel, bias)
    if isinstance(layer, MaxPool2D):
        return lambda x: F.max_pool2d(x, layer.size, layer.stride)
    if isinstance(layer, AveragePool2D):
        return lambda x: F.avg_pool2d(x, layer.size, layer.stride)
    if isinstance(layer, Flatten):
        return lambda x: x.flatten(1)
    if isinstance(layer, ReLU):
        return F.relu
    if isinstance(layer, Tanh):
        return torch.tanh
    if isinstance(layer, Softmax):
        return lambda x: x
    if isinstance(layer, Dropout):
        return None
    raise refuse_layer("torch", layer)


def make_relus_cheap(layers: Sequence[Layer], functions: list[Apply | None]) -> None:
    """In place behind what does not need its output to go backward: the same bits, less memory to go through."""
    for place in range(1, len(layers)):
        if isinstance(layers[place], ReLU) and isinstance(layers[place - 1], Conv2D | Dense | MaxPool2D):
            functions[place] = F.relu_


def _convolution(layer: Conv2D, input_shape: tuple[int, ...], kernel: Tensor, bias: Tensor) -> Apply:
    (top, bottom), (left, right) = resolved_padding(layer, input_shape)
    if top == bottom and left == right:
        return lambda x: F.conv2d(x, kernel, bias, layer.stride, (top, left), 1, layer.groups)
    padding = (left, right, top, bottom)
    return lambda x: F.conv2d(F.pad(x, padding), kernel, bias, layer.stride, 0, 1, layer.groups)
