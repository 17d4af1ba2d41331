"""Lasagne, imported over Theano 1.0, and the layers that stand in for its own.

Three are ours, in Lasagne's form: its convolution cuts "same" out of a larger one, turns kernels round and knows no
groups; its max pool and its rectifier have Theano's slopes (see hpcnn.wrappers.theano_ops).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from hpcnn.network.layers import Conv2D, MaxPool2D
from hpcnn.network.shapes import output_shape, resolved_padding
from hpcnn.wrappers.theano_import import import_theano
from hpcnn.wrappers.theano_ops import first_max_pool, relu

theano: Any = import_theano()
T: Any = theano.tensor
__all__ = ["Convolution", "FirstMaxPool2DLayer", "FunctionLayer", "MaskLayer", "lasagne", "relu"]


def import_lasagne() -> Any:
    """The module; Lasagne 0.1 asks Theano for one that Theano 1.0 has elsewhere."""
    name = "theano.tensor.signal.downsample"
    if "lasagne" not in sys.modules and name not in sys.modules:
        pool = importlib.import_module("theano.tensor.signal.pool")

        def max_pool_2d(input: Any, ds: Any, ignore_border: Any = None, st: Any = None, padding: Any = (0, 0),
                        mode: str = "max") -> Any:  # fmt: skip
            return pool.pool_2d(input, ws=ds, ignore_border=ignore_border, stride=st, pad=padding, mode=mode)

        shim: Any = ModuleType(name)
        shim.max_pool_2d, shim.DownsampleFactorMax = max_pool_2d, pool.Pool
        sys.modules[name] = shim
        importlib.import_module("theano.tensor.signal").downsample = shim  # type: ignore[attr-defined]
    return importlib.import_module("lasagne")


lasagne: Any = import_lasagne()


class Convolution(lasagne.layers.Conv2DLayer):  # type: ignore[misc]
    """Cross-correlation as a spec says it."""

    def __init__(self, incoming: Any, spec: Conv2D, input_shape: tuple[int, ...], **settings: Any) -> None:
        self.spec, self._found = spec, output_shape(spec, input_shape)
        self._padding = resolved_padding(spec, input_shape)
        super().__init__(incoming, spec.filters, spec.kernel, spec.stride, **settings)

    def get_W_shape(self) -> tuple[int, ...]:
        return (self.num_filters, self.input_shape[1] // self.spec.groups, *self.filter_size)

    def get_output_shape_for(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return (input_shape[0], *self._found)

    def get_output_for(self, input: Any, **settings: Any) -> Any:
        output = T.nnet.conv2d(
            input,
            self.W,
            input_shape=self.input_shape,
            filter_shape=self.get_W_shape(),
            border_mode=self._padding,
            subsample=self.stride,
            filter_flip=False,
            num_groups=self.spec.groups,
        )
        return self.nonlinearity(output + self.b.dimshuffle("x", 0, "x", "x"))


class FirstMaxPool2DLayer(lasagne.layers.MaxPool2DLayer):  # type: ignore[misc]
    """A max pool whose gradient goes to the first maximum."""

    def __init__(self, incoming: Any, spec: MaxPool2D) -> None:
        super().__init__(incoming, spec.size, spec.stride)
        self._pool = first_max_pool(spec)

    def get_output_for(self, input: Any, **settings: Any) -> Any:
        return self._pool(input)


class MaskLayer(lasagne.layers.Layer):  # type: ignore[misc]
    """Dropout whose masks are the suite's: `masks` of a call, in order."""

    def get_output_for(self, input: Any, masks: Any = None, **settings: Any) -> Any:
        return input if masks is None else input * next(masks)


class FunctionLayer(lasagne.layers.Layer):  # type: ignore[misc]
    """A native layer that is a function of the rows."""

    def __init__(self, incoming: Any, function: Any, shape: tuple[int, ...]) -> None:
        super().__init__(incoming)
        self._function, self._shape = function, shape

    def get_output_shape_for(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return (input_shape[0], *self._shape)

    def get_output_for(self, input: Any, **settings: Any) -> Any:
        return self._function(input)
