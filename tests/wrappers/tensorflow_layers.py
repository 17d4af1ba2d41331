"""Layers of one's own in TensorFlow, for the tests of native layers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Convolution(tf.Module):  # type: ignore[misc]
    """What nobody would write: a convolution that we have already, so that answers can be compared."""

    def __init__(self, channels: int, filters: int, size: int) -> None:
        super().__init__()
        self.kernel = tf.Variable(tf.random.normal((size, size, channels, filters)), name="kernel")
        self.bias = tf.Variable(tf.zeros((filters,)), name="bias")

    def __call__(self, x: Any) -> Any:
        return tf.nn.bias_add(tf.nn.conv2d(x, self.kernel, 1, "VALID"), self.bias)


class Counter(tf.Module):  # type: ignore[misc]
    """Counts its calls, in a variable that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = tf.Variable(0.0, trainable=False, name="calls")

    def __call__(self, x: Any) -> Any:
        self.calls.assign_add(1.0)
        return x
