"""Keras 2 on Theano behind the contract: a functional model of its own layers gives Theano a segment's expression.

The model's variables are replaced by pieces of the caller's flat vector, and its inputs by the function's. Keras turns
kernels round on Theano (a convolution, where all others correlate), so they are turned round for it.

Keras is imported as the process is set up: only then are the user's THEANO_FLAGS known.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from hpcnn.errors import BackendError
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
from hpcnn.network.shapes import resolved_padding
from hpcnn.wrappers.contract import Array
from hpcnn.wrappers.native import check_native, completed, found_tensors, make_native, refuse_layer
from hpcnn.wrappers.relus import relus_behind_pools
from hpcnn.wrappers.theano_native import Found, named, shared_facts
from hpcnn.wrappers.theano_segment import TheanoSegment, replaced_in


def _ours() -> Any:
    return importlib.import_module("hpcnn.wrappers.keras_theano_layers")


class KerasTheanoSegment(TheanoSegment):
    """A segment in Keras 2 on Theano on the CPU."""

    backend: ClassVar[str] = "keras"

    @classmethod
    def set_process_up(cls, options: Any, threads: int | None) -> None:
        if options.jit_compile:
            raise BackendError("[backend.keras] jit_compile is not for Keras over theano: leave it out")
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
        self._keras = _ours().keras
        shapes = (segment.input_shape, *segment.shapes)
        self._shared: dict[str, Any] = {}
        self._input = self._inferred = self._trained = self._keras.Input(segment.input_shape, dtype="float32")
        self._masks = [self._keras.Input(site.shape, dtype="float32") for site in segment.dropouts]
        waiting = iter(self._masks)
        for place in relus_behind_pools(segment.layers):
            layer, input_shape = segment.layers[place], shapes[place]
            if isinstance(layer, Dropout):
                product = self._keras.layers.Multiply(dtype="float32")
                self._trained = product([self._trained, next(waiting)])
                continue
            same = self._trained is self._inferred
            for made in self._build(layer, input_shape):
                self._trained = made(self._trained)
                self._inferred = self._trained if same else made(self._inferred)
                if isinstance(layer, Conv2D | Dense) and made.weights:
                    self._shared[f"{layer.name}/kernel"], self._shared[f"{layer.name}/bias"] = made.weights
                elif isinstance(layer, Native):
                    own = named_weights(getattr(made, "trainable_weights", ()))
                    self._shared.update({f"{layer.name}/{name}": one for name, one in own.items()})

    def _build(self, layer: Layer, input_shape: tuple[int, ...]) -> list[Any]:
        """Keras' layers, one after the other, that are this one; a softmax is in the loss."""
        layers, ours = self._keras.layers, _ours()
        settings = {"name": self._name(layer), "dtype": "float32"}
        if isinstance(layer, Conv2D):
            return list(ours.convolution(layer, resolved_padding(layer, input_shape), settings))
        if isinstance(layer, Dense):
            return [layers.Dense(layer.units, kernel_initializer="zeros", **settings)]
        if isinstance(layer, MaxPool2D):
            return [ours.FirstMaxPooling2D(layer, **settings)]
        if isinstance(layer, AveragePool2D):
            return [layers.AveragePooling2D(layer.size, layer.stride, data_format="channels_first", **settings)]
        if isinstance(layer, Flatten):
            # Keras' "channels_last" means: the axes as they are; units it does not take
            return [] if len(input_shape) == 1 else [layers.Flatten(data_format="channels_last", **settings)]
        if isinstance(layer, ReLU | Tanh):
            return [layers.Activation(ours.relu if isinstance(layer, ReLU) else "tanh", **settings)]
        if isinstance(layer, Softmax):
            return []
        if isinstance(layer, Native):
            return self._native(layer, input_shape)
        raise refuse_layer("keras", layer)

    def _native(self, layer: Native, input_shape: tuple[int, ...]) -> list[Any]:
        found = native_facts(layer, input_shape)
        own = {name: variable.get_value(borrow=True).shape for name, variable in found.tensors.items()}
        check_native(layer, own, found.output_shape)
        made, layers = make_native(layer, "keras"), self._keras.layers
        before = [layers.Permute((2, 3, 1), dtype="float32")] * (len(input_shape) == 3)
        after = [layers.Permute((3, 1, 2), dtype="float32")] * (len(found.output_shape) == 3)
        if not isinstance(made, layers.Layer):
            last = _channels_last(found.output_shape)
            made = layers.Lambda(made, output_shape=last, dtype="float32")
        return [*before, made, *after]

    @classmethod
    def complete_native(cls, layer: Native, input_shape: tuple[int, ...]) -> Native:
        asked = [native_facts(layer, input_shape) for _ in range(2)]
        values = [{name: one.get_value() for name, one in found.tensors.items()} for found in asked]
        return completed(layer, found_tensors(values), asked[0].output_shape)

    def _name(self, layer: Layer) -> str:
        """The layer's, or its place: Theano is particular about names."""
        plain = re.fullmatch(r"[A-Za-z0-9][\w-]*", layer.name, re.ASCII)
        return layer.name if plain else f"layer>{self.segment.layers.index(layer)}"

    def _output(self, x: Any, masks: Sequence[Any] | None, parameters: Mapping[str, Any]) -> Any:
        theirs: dict[Any, Any] = {self._input: x, **_phase(masks is not None)}
        if masks is not None:
            theirs.update(zip(self._masks, masks, strict=True))
        natives = {layer.name for layer in self.segment.layers if isinstance(layer, Native)}
        for name, tensor in parameters.items():
            ours = name.partition("/")[0] not in natives
            theirs[self._shared[name]] = _in_keras_layout(tensor) if ours else tensor
        return replaced_in(self._inferred if masks is None else self._trained, theirs)

    def describe(self) -> dict[str, Any]:
        keras = {"keras": self._keras.__version__, "keras_backend": "theano", "data_format": "channels_first"}
        return {**keras, **super().describe()}


def _in_keras_layout(tensor: Any) -> Any:
    """Kernels height x width x in x out, turned round, or in x out; biases as they are."""
    if tensor.ndim == 4:
        return tensor[:, :, ::-1, ::-1].dimshuffle(2, 3, 1, 0)
    return tensor.T


def _channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[1:], shape[0]) if len(shape) == 3 else shape


def _phase(training: bool) -> dict[Any, Any]:
    """What Keras asks whether it trains, and the answer."""
    asked = _ours().keras.backend.learning_phase()
    return {} if isinstance(asked, int) else {asked: _ours().T.constant(int(training), dtype=asked.dtype)}


def named_weights(variables: Sequence[Any]) -> dict[str, Any]:
    """By their own names, without their layer's."""
    return named([(variable.name or "tensor").rpartition("/")[2] for variable in variables], variables)


def native_facts(layer: Native, input_shape: tuple[int, ...]) -> Found:
    """The output shape of one sample, and the shared variables by name, of a layer made for the question."""
    ours, made = _ours(), make_native(layer, "keras")
    is_layer = isinstance(made, ours.keras.layers.Layer)
    rows = ours.keras.Input(_channels_last(input_shape), dtype="float32")
    if is_layer:
        with contextlib.suppress(Exception):  # which the probe says better
            made(rows)  # makes its weights

    def apply(x: Any) -> Any:
        given = x.dimshuffle(0, 2, 3, 1) if len(input_shape) == 3 else x
        output = made(rows) if is_layer else made(given)
        if not isinstance(output, ours.theano.Variable):
            return output
        replaced = {rows: given, **_phase(True)} if is_layer else {}
        output = replaced_in(output, replaced)
        return output.dimshuffle(0, 3, 1, 2) if output.ndim == 4 else output

    trained, others = (named_weights(getattr(made, f"{kind}_weights", ())) for kind in ("trainable", "non_trainable"))
    return shared_facts(layer, apply, input_shape, trained, list(others))
