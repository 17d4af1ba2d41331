"""Layers in TensorFlow that need more than a call: images channels-last, and max pools whose gradient is fast.

On CPUs TensorFlow convolves channels-last alone. There its max pool, and a relu that it joins to the product before it,
take nan for less than any number, so that a network that diverged may answer like any other. In inference nan comes out
here (`keeping_nan`). In training that would cost 5 to 8 % of a step: there it is seen in the weights (hpcnn.training
looks at them after each epoch) and in what the next inference says. Shared by the tensorflow wrapper and by Keras over
TensorFlow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from hpcnn.network.layers import Conv2D, MaxPool2D
from hpcnn.network.shapes import resolved_padding
from hpcnn.wrappers.tensorflow_import import import_tensorflow

tf: Any = import_tensorflow()

Apply = Callable[[Any], Any]
ALIGNMENT = 64
"""Bytes: TensorFlow's kernels load whole vectors of the widest processors."""


def convolution(layer: Conv2D, input_shape: tuple[int, ...]) -> Callable[[Any, Any], Any]:
    """Cross-correlation of rows with a kernel; groups one by one, since TensorFlow has no gradient of them on CPUs."""
    sides = resolved_padding(layer, input_shape)
    same = layer.padding == "same"

    def convolve(x: Any, kernel: Any) -> Any:
        if not same and any(map(any, sides)):
            x = tf.pad(x, ((0, 0), *sides, (0, 0)))
        if layer.groups == 1:
            return tf.nn.conv2d(x, kernel, layer.stride, "SAME" if same else "VALID")
        pieces = zip(tf.split(x, layer.groups, 3), tf.split(kernel, layer.groups, 3), strict=True)
        return tf.concat([tf.nn.conv2d(one, own, layer.stride, "SAME" if same else "VALID") for one, own in pieces], 3)

    return convolve


_KEEPING_NAN: ContextVar[bool] = ContextVar("keeping_nan", default=False)


@contextmanager
def keeping_nan() -> Iterator[None]:
    """What is built within, or traced by tf.function, makes nan of nan; for inference."""
    token = _KEEPING_NAN.set(True)
    try:
        yield
    finally:
        _KEEPING_NAN.reset(token)


def relu(x: Any) -> Any:
    """max(x, 0); its slope at 0 is 0."""
    return tf.maximum(x, 0.0) if _KEEPING_NAN.get() else tf.nn.relu(x)


def max_pool(layer: MaxPool2D) -> Apply:
    """A max pool whose backward pools again.

    oneDNN's gradient needs what its forward left, which a split function does not hand over; the kernel that takes its
    place is ten times slower. A second forward beside the gradient costs a tenth of that."""

    def pooled(x: Any) -> Any:
        return tf.nn.max_pool2d(x, layer.size, layer.stride, "VALID")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def pool(x: Any) -> Any:
        def slope(output_gradient: Any) -> Any:
            return tf.raw_ops.MaxPoolGrad(
                orig_input=x,
                orig_output=pooled(x),
                grad=output_gradient,
                ksize=(1, *layer.size, 1),
                strides=(1, *layer.stride, 1),
                padding="VALID",
            )

        return pooled(x) + _nothing_or_nan(layer, x) if _KEEPING_NAN.get() else pooled(x), slope

    apply: Apply = pool
    return apply


def compared_max_pool(layer: MaxPool2D) -> Apply:
    """A max pool whose backward is comparisons and additions of whole images, one a place in the window, for XLA.

    XLA's own gradient of a pool is refused where operations have to be deterministic."""
    (high, wide), (down, right) = layer.size, layer.stride

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def pool(x: Any) -> Any:
        output = tf.nn.max_pool2d(x, layer.size, layer.stride, "VALID")

        def slope(output_gradient: Any) -> Any:
            shape, taken, gradient = tf.shape(x), tf.zeros_like(output, bool), tf.zeros_like(x)
            rows, columns = (output.shape[1] - 1) * down + 1, (output.shape[2] - 1) * right + 1
            for top, left in itertools.product(range(high), range(wide)):
                begin, end = (0, top, left, 0), (shape[0], top + rows, left + columns, shape[3])
                first = (tf.strided_slice(x, begin, end, (1, down, right, 1)) == output) & ~taken
                taken |= first
                gradient += tf.raw_ops.StridedSliceGrad(
                    shape=shape, begin=begin, end=end, strides=(1, down, right, 1),
                    dy=tf.where(first, output_gradient, 0.0),
                )  # fmt: skip
            return gradient

        return output + _nothing_or_nan(layer, x), slope

    apply: Apply = pool
    return apply


def _nothing_or_nan(layer: MaxPool2D, x: Any) -> Any:
    """0 for each window of numbers, and nan for one that holds nan or an infinity."""
    return 0.0 * tf.nn.avg_pool2d(x, layer.size, layer.stride, "VALID")


def shared(array: Any) -> Any:
    """A tensor that reads a NumPy array where it lies; a copy where TensorFlow could not: unaligned or read-only."""
    if array.size and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)


def to_channels_last(x: Any) -> Any:
    """(n, c, h, w) to (n, h, w, c); rows of units as they are."""
    return _permuted(x, (0, 2, 3, 1), single=1)


def to_channels_first(x: Any) -> Any:
    """(n, h, w, c) to (n, c, h, w); rows of units as they are."""
    return _permuted(x, (0, 3, 1, 2), single=3)


def _permuted(x: Any, axes: tuple[int, ...], single: int) -> Any:
    if x.shape.rank != 4:
        return x
    if x.shape[single] == 1:  # one channel: both layouts are the same memory
        return tf.reshape(x, [-1, *(x.shape[axis] for axis in axes[1:])])
    return tf.transpose(x, axes)
