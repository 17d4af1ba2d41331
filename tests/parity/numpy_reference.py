"""The network's mathematics once more, in float64 NumPy and no framework: what every backend is held against.

It reads layer specs (a network is given by them) and nothing else of the package: padding, layout and gradients are
written again from their definitions, for clarity and not for speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Array = Any  # float64 arrays throughout


class Reference:
    """An architecture with its flat canonical weights (layers in order, kernel before bias), in float64."""

    def __init__(self, architecture: Any, weights: Array) -> None:
        self.layers = architecture.layers
        self.operations = []
        self.weights = np.array(weights, dtype=np.float64)
        shape, offset = architecture.input_shape, 0
        for layer in self.layers[:-1]:
            operation = OPERATIONS[layer.type_name](layer, shape)
            offset = operation.take(self.weights, offset)
            shape = operation.output_shape
            self.operations.append(operation)
        if offset != self.weights.size:
            raise ValueError(f"the network has {offset} weights, {self.weights.size} were given")

    def logits(self, x: Array, masks: Sequence[Array] = ()) -> Array:
        """What enters the softmax, (n, classes); without masks, dropout does nothing, as in evaluation."""
        value, remaining = np.asarray(x, dtype=np.float64), list(masks)
        for operation in self.operations:
            if isinstance(operation, Mask):
                operation.mask = np.asarray(remaining.pop(0), dtype=np.float64) if masks else 1.0
            value = operation.forward(value)
        return value

    def loss_and_gradient(
        self, x: Array, labels: Array, masks: Sequence[Array] = (), divisor: float = 1.0
    ) -> tuple[float, Array, Array]:
        """Sum of the rows' losses (not divided), then the gradients of sum / divisor by the weights and by x."""
        if len(masks) != sum(isinstance(operation, Mask) for operation in self.operations):
            raise ValueError("training needs one mask for each dropout")
        logits = self.logits(x, masks)
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probability = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        chosen = np.arange(len(logits)), np.asarray(labels)
        slope = np.exp(log_probability)
        slope[chosen] -= 1
        slope /= divisor
        gradient: list[Array] = []
        for operation in reversed(self.operations):
            slope, own = operation.backward(slope)
            gradient[:0] = [part.ravel() for part in own]
        return -float(log_probability[chosen].sum()), np.concatenate(gradient), slope


class Operation:
    """One layer; `backward` gives the slope by its input and the slopes by its own weights."""

    def __init__(self, layer: Any, input_shape: tuple[int, ...]) -> None:
        self.layer = layer
        self.output_shape = input_shape

    def take(self, weights: Array, offset: int) -> int:
        """Bind its weights, which begin at `offset`; returns where the next layer's begin."""
        return offset


class Elementwise(Operation):
    def forward(self, x: Array) -> Array:
        value, self.slope = self.function(x)
        return value

    def backward(self, dy: Array) -> tuple[Array, list[Array]]:
        return dy * self.slope, []


class ReLU(Elementwise):
    def function(self, x: Array) -> tuple[Array, Array]:
        return np.maximum(x, 0), (x > 0).astype(np.float64)


class Tanh(Elementwise):
    def function(self, x: Array) -> tuple[Array, Array]:
        return np.tanh(x), 1 - np.tanh(x) ** 2


class Mask(Elementwise):
    mask: Array = 1.0

    def function(self, x: Array) -> tuple[Array, Array]:
        return x * self.mask, self.mask


class Flatten(Operation):
    def __init__(self, layer: Any, input_shape: tuple[int, ...]) -> None:
        self.input_shape, self.output_shape = input_shape, (int(np.prod(input_shape)),)

    def forward(self, x: Array) -> Array:
        return x.reshape(len(x), *self.output_shape)

    def backward(self, dy: Array) -> tuple[Array, list[Array]]:
        return dy.reshape(len(dy), *self.input_shape), []


class Weighted(Operation):
    kernel_shape: tuple[int, ...]

    def take(self, weights: Array, offset: int) -> int:
        middle = offset + int(np.prod(self.kernel_shape))
        stop = middle + self.kernel_shape[0]
        self.kernel, self.bias = weights[offset:middle].reshape(self.kernel_shape), weights[middle:stop]
        return stop


class Dense(Weighted):
    def __init__(self, layer: Any, input_shape: tuple[int, ...]) -> None:
        self.output_shape, self.kernel_shape = (layer.units,), (layer.units, *input_shape)

    def forward(self, x: Array) -> Array:
        self.x = x
        return x @ self.kernel.T + self.bias

    def backward(self, dy: Array) -> tuple[Array, list[Array]]:
        return dy @ self.kernel, [dy.T @ self.x, dy.sum(axis=0)]


class Convolution(Weighted):
    """Cross-correlation as one small matrix product for each group and each position within the kernel."""

    def __init__(self, layer: Any, input_shape: tuple[int, ...]) -> None:
        self.layer = layer
        (height, width), (kh, kw), (sh, sw) = input_shape[1:], layer.kernel, layer.stride
        self.padding = layer.padding
        if self.padding == "valid":
            self.padding = ((0, 0), (0, 0))
        elif self.padding == "same":
            self.padding = tensorflow_same(height, kh, sh), tensorflow_same(width, kw, sw)
        rows = (height + sum(self.padding[0]) - kh) // sh + 1
        columns = (width + sum(self.padding[1]) - kw) // sw + 1
        self.output_shape = (layer.filters, rows, columns)
        self.kernel_shape = (layer.filters, input_shape[0] // layer.groups, kh, kw)

    def forward(self, x: Array) -> Array:
        self.padded = channels_first(np.pad(x, ((0, 0), (0, 0), *self.padding)))
        filters, rows, columns = self.output_shape
        y = np.zeros((filters, len(x), rows, columns)) + self.bias[:, None, None, None]
        for i, j, out, into in self._pieces():
            y[out] += np.tensordot(self.kernel[out, :, i, j], self._under(self.padded, i, j)[into], axes=1)
        return channels_first(y)

    def backward(self, dy: Array) -> tuple[Array, list[Array]]:
        dy, dx, dkernel = channels_first(dy), np.zeros_like(self.padded), np.zeros_like(self.kernel)
        for i, j, out, into in self._pieces():
            under = self._under(self.padded, i, j)[into]
            dkernel[out, :, i, j] = np.tensordot(dy[out], under, axes=((1, 2, 3), (1, 2, 3)))
            self._under(dx, i, j)[into] += np.tensordot(self.kernel[out, :, i, j].T, dy[out], axes=1)
        (top, bottom), (left, right) = self.padding
        height, width = dx.shape[2:]
        inner = dx[:, :, top : height - bottom, left : width - right]
        return channels_first(inner), [dkernel, dy.sum(axis=(1, 2, 3))]

    def _pieces(self) -> Any:
        """Positions within the kernel, and for each group its filters and its input channels."""
        (filters, channels), groups = self.kernel_shape[:2], self.layer.groups
        filters //= groups
        for i, j in np.ndindex(*self.kernel_shape[2:]):
            for g in range(groups):
                yield i, j, slice(g * filters, (g + 1) * filters), slice(g * channels, (g + 1) * channels)

    def _under(self, image: Array, i: int, j: int) -> Array:
        """A view of the elements that kernel position (i, j) meets, one for each output position."""
        return strided(image, i, j, self.layer.stride, self.output_shape)


class Pool(Operation):
    def __init__(self, layer: Any, input_shape: tuple[int, ...]) -> None:
        self.layer = layer
        counts = [(n - s) // t + 1 for n, s, t in zip(input_shape[1:], layer.size, layer.stride, strict=True)]
        self.output_shape = (input_shape[0], *counts)

    def forward(self, x: Array) -> Array:
        self.input_shape = x.shape
        sh, sw = self.layer.stride
        windows = sliding_window_view(x, self.layer.size, axis=(2, 3))[:, :, ::sh, ::sw]
        return self.reduce(windows.reshape(*windows.shape[:4], -1))

    def backward(self, dy: Array) -> tuple[Array, list[Array]]:
        dx = np.zeros(self.input_shape)
        for place, (i, j) in enumerate(np.ndindex(*self.layer.size)):
            strided(dx, i, j, self.layer.stride, self.output_shape)[...] += dy * self.share(place)
        return dx, []


class MaxPool(Pool):
    def reduce(self, windows: Array) -> Array:
        self.first = windows.argmax(axis=-1)  # the first of equal maxima, by NumPy's definition
        return windows.max(axis=-1)

    def share(self, place: int) -> Array:
        return self.first == place


class AveragePool(Pool):
    def reduce(self, windows: Array) -> Array:
        self.count = windows.shape[-1]
        return windows.mean(axis=-1)

    def share(self, place: int) -> Array:
        return 1 / self.count


OPERATIONS = {
    "convolution": Convolution,
    "max_pool": MaxPool,
    "average_pool": AveragePool,
    "flatten": Flatten,
    "dense": Dense,
    "relu": ReLU,
    "tanh": Tanh,
    "dropout": Mask,
}


def channels_first(images: Array) -> Array:
    """(n, c, h, w) to (c, n, h, w) and back, contiguous: matrix products run over channels."""
    return np.ascontiguousarray(images.swapaxes(0, 1))


def strided(image: Array, i: int, j: int, stride: tuple[int, int], output_shape: tuple[int, ...]) -> Array:
    """The view of image (.., h, w) that starts at (i, j), a stride apart, as many as the output has."""
    (sh, sw), (rows, columns) = stride, output_shape[1:]
    return image[:, :, i : i + sh * (rows - 1) + 1 : sh, j : j + sw * (columns - 1) + 1 : sw]


def tensorflow_same(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """As https://www.tensorflow.org/api_docs/python/tf/nn writes it."""
    total = max(kernel - stride, 0) if length % stride == 0 else max(kernel - length % stride, 0)
    return total // 2, total - total // 2
