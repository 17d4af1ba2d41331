"""What each layer does to the shape of one sample, and errors that name the layer where it does not fit."""

from __future__ import annotations

from math import prod

from hpcnn.errors import NetworkError
from hpcnn.network.fields import Pair
from hpcnn.network.layers import Conv2D, Dense, Flatten, Layer, Pool2D, Softmax
from hpcnn.network.native import Native

Shape = tuple[int, ...]


def output_shape(layer: Layer, input_shape: Shape) -> Shape:
    """The output shape of one sample, (channels, height, width) or (units,); NetworkError where the layer can't go."""
    match layer:
        case Conv2D():
            return _convolution(layer, input_shape)
        case Pool2D():
            channels, height, width = _image(layer, input_shape)
            return channels, *_windows(layer, (height, width), layer.size, layer.stride)
        case Flatten():
            return (prod(input_shape),)
        case Dense():
            _flat(layer, input_shape)
            return (layer.units,)
        case Softmax():
            _flat(layer, input_shape)
        case Native():
            return input_shape if layer.output_shape is None else layer.output_shape
    return input_shape


def resolved_padding(layer: Conv2D, input_shape: Shape) -> tuple[Pair, Pair]:
    """((top, bottom), (left, right)) for an input of (channels, height, width).

    "same" is TensorFlow's convention: the output is ceil(input / stride), and an odd total leaves one more at the
    bottom and right. https://www.tensorflow.org/api_docs/python/tf/nn
    """
    if layer.padding == "valid":
        return (0, 0), (0, 0)
    if layer.padding == "same":
        height, width = _image(layer, input_shape)[1:]
        return _same(height, layer.kernel[0], layer.stride[0]), _same(width, layer.kernel[1], layer.stride[1])
    return layer.padding


def _same(length: int, kernel: int, stride: int) -> Pair:
    total = max((-(-length // stride) - 1) * stride + kernel - length, 0)
    return total // 2, total - total // 2


def _convolution(layer: Conv2D, input_shape: Shape) -> Shape:
    channels, height, width = _image(layer, input_shape)
    if channels % layer.groups:
        raise NetworkError(
            f"{layer.label}: its {layer.groups} groups do not divide the {channels} channels of its input; "
            "choose a divisor"
        )
    (top, bottom), (left, right) = resolved_padding(layer, input_shape)
    padded = (height + top + bottom, width + left + right)
    return layer.filters, *_windows(layer, padded, layer.kernel, layer.stride)


def _windows(layer: Layer, image: Pair, window: Pair, stride: Pair) -> Pair:
    """How many windows fit in each direction, floored."""
    if window[0] > image[0] or window[1] > image[1]:
        raise NetworkError(
            f"{layer.label}: its window of {window[0]} x {window[1]} is larger than its input of "
            f"{image[0]} x {image[1]}; make it smaller, pad, or pool less before it"
        )
    return (image[0] - window[0]) // stride[0] + 1, (image[1] - window[1]) // stride[1] + 1


def _image(layer: Layer, shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise NetworkError(
            f"{layer.label}: its input has shape {shape} but it needs (channels, height, width); "
            "put it before the flatten layer"
        )
    return shape[0], shape[1], shape[2]


def _flat(layer: Layer, shape: Shape) -> None:
    if len(shape) != 1:
        raise NetworkError(
            f"{layer.label}: its input has shape {shape} but it needs (units,); put a flatten layer before it"
        )
