"""Lasagne behind the contract: its layers give Theano the expression of a segment.

Their weights are replaced by pieces of the caller's flat vector. Lasagne is imported as the process is set up: only
then are the user's THEANO_FLAGS known.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from hpcnn.network.architecture import Segment
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
from hpcnn.network.native import Native
from hpcnn.wrappers.contract import Array
from hpcnn.wrappers.native import check_native, completed, found_tensors, make_native, refuse_layer
from hpcnn.wrappers.relus import relus_behind_pools
from hpcnn.wrappers.theano_native import Found, named, shared_facts
from hpcnn.wrappers.theano_segment import TheanoSegment, replaced_in


def _ours() -> Any:
    return importlib.import_module("hpcnn.wrappers.lasagne_layers")


class LasagneSegment(TheanoSegment):
    """A segment in Lasagne on the CPU."""

    backend: ClassVar[str] = "lasagne"

    @classmethod
    def set_process_up(cls, options: Any, threads: int | None) -> None:
        super().set_process_up(options, threads)
        _ours()

    def __init__(
        self,
        segment: Segment,
        weights: Array,
        gradient: Array,
        *,
        input_gradient: bool | None = None,
        options: Any = None,
    ) -> None:
        super().__init__(segment, weights, gradient, input_gradient=input_gradient, options=options)
        self._lasagne = _ours().lasagne
        self._shared: dict[str, Any] = {}
        shapes = (segment.input_shape, *segment.shapes)
        self._input = self._top = self._lasagne.layers.InputLayer((None, *segment.input_shape))
        for place in relus_behind_pools(segment.layers):
            self._top = self._build(segment.layers[place], self._top, shapes[place])

    def _build(self, layer: Layer, incoming: Any, input_shape: tuple[int, ...]) -> Any:
        """Lasagne's layer on top of `incoming`."""
        layers, ours, plain = self._lasagne.layers, _ours(), {"W": _zeros, "b": _zeros, "nonlinearity": None}
        if isinstance(layer, Conv2D):
            return self._held(layer, ours.Convolution(incoming, layer, input_shape, **plain))
        if isinstance(layer, Dense):
            return self._held(layer, layers.DenseLayer(incoming, layer.units, **plain))
        if isinstance(layer, MaxPool2D):
            return ours.FirstMaxPool2DLayer(incoming, layer)
        if isinstance(layer, AveragePool2D):
            return layers.Pool2DLayer(incoming, layer.size, layer.stride, mode="average_exc_pad")
        if isinstance(layer, Flatten):
            return layers.FlattenLayer(incoming)
        if isinstance(layer, ReLU):
            return layers.NonlinearityLayer(incoming, ours.relu)
        if isinstance(layer, Tanh):
            return layers.NonlinearityLayer(incoming, self._lasagne.nonlinearities.tanh)
        if isinstance(layer, Softmax):
            return incoming
        if isinstance(layer, Dropout):
            return ours.MaskLayer(incoming)
        if isinstance(layer, Native):
            return self._native(layer, incoming, input_shape)
        raise refuse_layer("lasagne", layer)

    def _held(self, layer: Layer, made: Any) -> Any:
        self._shared[f"{layer.name}/kernel"], self._shared[f"{layer.name}/bias"] = made.W, made.b
        return made

    def _native(self, layer: Native, incoming: Any, input_shape: tuple[int, ...]) -> Any:
        found = native_facts(layer, input_shape)
        own = {name: variable.get_value(borrow=True).shape for name, variable in found.tensors.items()}
        check_native(layer, own, found.output_shape)
        made = _made(layer, incoming, found.output_shape)
        for name, variable in _named(made.get_params(trainable=True)).items():
            self._shared[f"{layer.name}/{name}"] = variable
        return made

    @classmethod
    def complete_native(cls, layer: Native, input_shape: tuple[int, ...]) -> Native:
        asked = [native_facts(layer, input_shape) for _ in range(2)]
        values = [{name: one.get_value() for name, one in found.tensors.items()} for found in asked]
        return completed(layer, found_tensors(values), asked[0].output_shape)

    def _output(self, x: Any, masks: Sequence[Any] | None, parameters: Mapping[str, Any]) -> Any:
        waiting = None if masks is None else iter(masks)
        known = {"deterministic": masks is None, "masks": waiting}
        output = self._lasagne.layers.get_output(self._top, {self._input: x}, **known)
        dense = {f"{layer.name}/kernel" for layer in self.segment.layers if isinstance(layer, Dense)}
        # Lasagne's are in x out
        theirs = {name: tensor.T if name in dense else tensor for name, tensor in parameters.items()}
        return replaced_in(output, {self._shared[name]: tensor for name, tensor in theirs.items()})

    def describe(self) -> dict[str, Any]:
        return {"lasagne": self._lasagne.__version__, **super().describe()}


def _zeros(shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.float32)


def _made(layer: Native, incoming: Any, shape: tuple[int, ...]) -> Any:
    """The layer on top of `incoming`; a function, which has none of Lasagne's, gives rows of `shape`."""
    made, ours = make_native(layer, "lasagne", incoming), _ours()
    is_layer = isinstance(made, ours.lasagne.layers.Layer | ours.lasagne.layers.MergeLayer)
    return made if is_layer or not callable(made) else ours.FunctionLayer(incoming, made, shape)


def _named(variables: Sequence[Any]) -> dict[str, Any]:
    return named([variable.name or "tensor" for variable in variables], variables)


def native_facts(layer: Native, input_shape: tuple[int, ...]) -> Found:
    """The output shape of one sample, and the shared variables by name, of a layer made for the question."""
    ours = _ours()
    incoming = ours.lasagne.layers.InputLayer((None, *input_shape))
    made = _made(layer, incoming, input_shape)
    trained, others = (_named(made.get_params(trainable=kind)) for kind in (True, False))

    def apply(x: Any) -> Any:
        return ours.lasagne.layers.get_output(made, {incoming: x}, deterministic=False)

    return shared_facts(layer, apply, input_shape, trained, list(others))
