"""Layers of one's own in Lasagne, for the tests of native layers."""

from __future__ import annotations

from typing import Any

import lasagne
import theano.tensor as T


class Convolution(lasagne.layers.Layer):  # type: ignore[misc]
    """What nobody would write: a convolution that we have already, so that answers can be compared."""

    def __init__(self, incoming: Any, filters: int, size: int) -> None:
        super().__init__(incoming)
        self._shape = (filters, self.input_shape[1], size, size)
        self.kernel = self.add_param(lasagne.init.GlorotUniform(), self._shape, name="kernel")
        self.bias = self.add_param(lasagne.init.Constant(0.0), (filters,), name="bias")

    def get_output_shape_for(self, input_shape: Any) -> Any:
        filters, _, size, _ = self._shape
        return (input_shape[0], filters, input_shape[2] - size + 1, input_shape[3] - size + 1)

    def get_output_for(self, input: Any, **settings: Any) -> Any:
        return T.nnet.conv2d(input, self.kernel, filter_flip=False) + self.bias.dimshuffle("x", 0, "x", "x")


class Shifted(lasagne.layers.Layer):  # type: ignore[misc]
    """Keeps a number that is not trained."""

    def __init__(self, incoming: Any) -> None:
        super().__init__(incoming)
        self.shift = self.add_param(lasagne.init.Constant(1.0), (1,), name="shift", trainable=False)

    def get_output_for(self, input: Any, **settings: Any) -> Any:
        return input + self.shift.sum()
