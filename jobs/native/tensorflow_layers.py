"""A layer of one's own for jobs/native/tensorflow.toml: a tf.Module whose variables are trained like any weights."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class PReLU(tf.Module):  # type: ignore[misc]
    """A ReLU whose slope below 0 is learnt, one a channel (He et al., ICCV 2015)."""

    def __init__(self, channels: int, slope: float) -> None:
        super().__init__()
        self.slope = tf.Variable(tf.fill((channels,), slope), name="slope")

    def __call__(self, x: Any) -> Any:
        """Rows channels-last, as TensorFlow has them."""
        return tf.where(x > 0, x, self.slope * x)
