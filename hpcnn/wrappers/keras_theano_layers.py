"""Keras 2.3.1, imported over Theano and with no settings but ours, and the layers that stand in for its own.

It reads, or writes, a settings file in the home directory, greets on standard error, and wants names in `collections`
that Python has in collections.abc.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import importlib
import io
import os
import sys
import warnings
from typing import Any

from hpcnn.errors import BackendError
from hpcnn.network.layers import Conv2D, MaxPool2D
from hpcnn.wrappers.import_alone import NO_KERAS_HOME, during, without
from hpcnn.wrappers.theano_import import import_theano
from hpcnn.wrappers.theano_ops import first_max_pool, relu

_GUESTS = ("matplotlib", "pandas", "PIL", "tensorflow")


def import_keras_2() -> Any:
    """The module. BackendError where Keras was imported in this process before, over something else."""
    import_theano()
    if "keras" not in sys.modules:
        for name in collections.abc.__all__:
            if not hasattr(collections, name):
                setattr(collections, name, getattr(collections.abc, name))
        own = {**NO_KERAS_HOME, "KERAS_BACKEND": "theano"}
        quiet = contextlib.redirect_stderr(io.StringIO())
        with during(os.environ, own), without(_GUESTS), quiet, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("keras")
    keras: Any = sys.modules["keras"]
    running = keras.backend.backend()
    if running != "theano" or not keras.__version__.startswith("2."):
        raise BackendError(
            f"Keras {keras.__version__} runs in this process already, over {running}, not Keras 2 over theano: start "
            "another process"
        )
    return keras


keras: Any = import_keras_2()
theano: Any = import_theano()
T: Any = theano.tensor
__all__ = ["FIRST", "FirstMaxPooling2D", "GroupedConv2D", "T", "convolution", "keras", "relu", "theano"]
FIRST: dict[str, Any] = {"data_format": "channels_first"}


class GroupedConv2D(keras.layers.Conv2D):  # type: ignore[misc]
    """A convolution of groups, which Keras 2 does not have; its kernel is height x width x in / groups x out."""

    def __init__(self, groups: int, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._groups = groups

    def build(self, input_shape: tuple[Any, ...]) -> None:
        each = input_shape[1] // self._groups
        self.kernel = self.add_weight(
            shape=(*self.kernel_size, each, self.filters), initializer=self.kernel_initializer, name="kernel"
        )
        self.bias = self.add_weight(shape=(self.filters,), initializer=self.bias_initializer, name="bias")
        self.built = True

    def call(self, inputs: Any) -> Any:
        output = T.nnet.conv2d(
            inputs,
            self.kernel.dimshuffle(3, 2, 0, 1),
            border_mode="half" if self.padding == "same" else "valid",
            subsample=self.strides,
            num_groups=self._groups,
        )
        return output + self.bias.dimshuffle("x", 0, "x", "x")


class FirstMaxPooling2D(keras.layers.MaxPooling2D):  # type: ignore[misc]
    """A max pool whose gradient goes to the first maximum."""

    def __init__(self, spec: MaxPool2D, **settings: Any) -> None:
        super().__init__(spec.size, spec.stride, **FIRST, **settings)
        self._pool = first_max_pool(spec)

    def call(self, inputs: Any) -> Any:
        return self._pool(inputs)


def convolution(spec: Conv2D, padding: Any, settings: dict[str, Any]) -> list[Any]:
    """Keras' layers that are this one. Its own "same" pads even kernels and strides otherwise than the suite."""
    found: list[Any] = []
    middle = tuple((length // 2, length // 2) for length in spec.kernel)
    same = padding == middle and all(length % 2 for length in spec.kernel)
    if not same and any(map(any, padding)):
        own = {**settings, "name": f"{settings['name']}>padding"}
        found.append(keras.layers.ZeroPadding2D(padding, **FIRST, **own))
    settings = {"padding": "same" if same else "valid", "kernel_initializer": "zeros", **FIRST, **settings}
    if spec.groups > 1:
        return [*found, GroupedConv2D(spec.groups, spec.filters, spec.kernel, strides=spec.stride, **settings)]
    return [*found, keras.layers.Conv2D(spec.filters, spec.kernel, strides=spec.stride, **settings)]
