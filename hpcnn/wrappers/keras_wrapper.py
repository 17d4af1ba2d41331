"""Keras 3 behind the contract: a functional model of its own layers, run over TensorFlow, PyTorch or JAX.

Parameters enter by `stateless_call`, as tensors cut from the caller's flat vector, so the model's own variables are
never read; masks enter as further inputs. Derivatives are the framework's: see
hpcnn.wrappers.keras_derivatives.

Whatever is set in Keras at large (number format, order of axes) is given to every layer anew, so that it cannot change
results.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray

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
from hpcnn.wrappers.contract import Array, Capabilities, LossResult, SegmentModel
from hpcnn.wrappers.keras_derivatives import derivatives_of
from hpcnn.wrappers.keras_import import import_keras, refuse_another_keras
from hpcnn.wrappers.native import check_native, completed, found_tensors, make_native, probe, refuse_layer, refuse_state
from hpcnn.wrappers.relus import relus_behind_pools

_LAYOUTS = {4: (2, 3, 1, 0), 2: (1, 0)}
"""Of kernels: canonical axes in Keras' order, height x width x in x out, or in x out."""


class KerasSegment(SegmentModel):
    """A segment in Keras on the CPU."""

    backend: ClassVar[str] = "keras"
    capabilities: ClassVar[Capabilities] = Capabilities(weights_are_views=False)

    @classmethod
    def set_process_up(cls, options: Any, threads: int | None) -> None:
        refuse_another_keras(options.backend)
        derivatives_of(options.backend).set_process_up(options, threads)
        import_keras(options.backend)

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
        self._keras = import_keras(self.options.backend)
        self._derivatives_class = derivatives = derivatives_of(self.options.backend)
        self._format = {"data_format": derivatives.data_format, "dtype": "float32"}
        shapes = (segment.input_shape, *segment.shapes)
        order = relus_behind_pools(segment.layers)
        # a native layer's tensors are in Keras' order already
        natives = {layer.name for layer in segment.layers if isinstance(layer, Native)}
        self._axes = [None if one.layer in natives else _LAYOUTS.get(len(one.shape)) for one in segment.parameters]
        steps = [self._build(segment.layers[place], shapes[place]) for place in order]
        self._inference = self._model(steps, masked=False)
        self._training = self._model(steps, masked=True) if segment.dropouts else self._inference
        self.derivatives = derivatives(self, self._apply, self._keras.ops)
        self._slots: dict[int, tuple[Any, Any]] = {}

    def _model(self, steps: Sequence[Sequence[Any] | None], *, masked: bool) -> Any:
        """Layers on rows in the contract's layout; a dropout (None) is a product with a mask, or nothing."""
        x = self._input(self.segment.input_shape)
        masks = [self._input(dropout.shape) for dropout in self.segment.dropouts] if masked else []
        waiting = iter(masks)
        output = self._in_layout(x)
        for layers in steps:
            for layer in layers or ():
                output = layer(output)
            if layers is None and masked:
                output = self._keras.layers.Multiply(dtype="float32")([output, self._in_layout(next(waiting))])
        return self._keras.Model([x, *masks], self._out_of_layout(output))

    def _input(self, shape: tuple[int, ...]) -> Any:
        return self._keras.Input(shape, dtype="float32")

    def _in_layout(self, x: Any) -> Any:
        """Images as the layers take them; units as they are."""
        return self._permuted(x, (2, 3, 1), single=1)

    def _out_of_layout(self, x: Any) -> Any:
        """(n, c, h, w) again; units as they are."""
        return self._permuted(x, (3, 1, 2), single=3)

    def _permuted(self, x: Any, axes: tuple[int, ...], single: int) -> Any:
        if len(x.shape) != 4 or self._format["data_format"] == "channels_first":
            return x
        if x.shape[single] == 1:  # one channel: both layouts are the same memory
            return self._keras.layers.Reshape([x.shape[axis] for axis in axes], dtype="float32")(x)
        return self._keras.layers.Permute(axes, dtype="float32")(x)

    def _build(self, layer: Layer, input_shape: tuple[int, ...]) -> list[Any] | None:
        """Keras' layers, one after the other, that are this one; None for dropout."""
        layers, name = self._keras.layers, self._name(layer)
        if isinstance(layer, Conv2D):
            return self._convolution(layer, name)
        if isinstance(layer, Dense):
            return [layers.Dense(layer.units, kernel_initializer="zeros", name=name, dtype="float32")]
        if isinstance(layer, MaxPool2D):
            if (pool := self._derivatives_class.max_pool(layer, self.options)) is not None:
                return [layers.Lambda(pool, name=name, dtype="float32")]
            return [layers.MaxPooling2D(layer.size, layer.stride, name=name, **self._format)]
        if isinstance(layer, AveragePool2D):
            return [layers.AveragePooling2D(layer.size, layer.stride, name=name, **self._format)]
        if isinstance(layer, Flatten):
            # Keras' "channels_last" means: the axes as they are
            flatten = layers.Flatten(data_format="channels_last", name=name, dtype="float32")
            return [self._out_of_layout, flatten]
        if isinstance(layer, ReLU | Tanh):
            function = self._derivatives_class.activations.get(layer.type_name, layer.type_name)
            return [layers.Activation(function, name=name, dtype="float32")]
        if isinstance(layer, Softmax):
            return []
        if isinstance(layer, Dropout):
            return None
        if isinstance(layer, Native):
            made = make_native(layer, "keras")
            output_shape, own = native_facts(self._keras, layer, made, input_shape)
            check_native(layer, {tensor: tuple(variable.shape) for tensor, variable in own.items()}, output_shape)
            if self._format["data_format"] == "channels_last":
                return [made]
            return [self._channels_last, made, self._channels_first]
        raise refuse_layer("keras", layer)

    def _channels_last(self, x: Any) -> Any:
        return x if len(x.shape) != 4 else self._keras.layers.Permute((2, 3, 1), dtype="float32")(x)

    def _channels_first(self, x: Any) -> Any:
        return x if len(x.shape) != 4 else self._keras.layers.Permute((3, 1, 2), dtype="float32")(x)

    @classmethod
    def complete_native(cls, layer: Native, input_shape: tuple[int, ...]) -> Native:
        keras = sys.modules["keras"]  # imported as the process was set up
        asked = [native_facts(keras, layer, make_native(layer, "keras"), input_shape) for _ in range(2)]
        values = [
            {name: keras.ops.convert_to_numpy(variable.value) for name, variable in own.items()} for _, own in asked
        ]
        return completed(layer, found_tensors(values), asked[0][0])

    def _name(self, layer: Layer) -> str:
        """The layer's, or its place: torch has no names with a point, TensorFlow none that begin with a sign."""
        plain = re.fullmatch(r"[A-Za-z0-9][\w-]*", layer.name, re.ASCII)
        return layer.name if plain else f"layer>{self.segment.layers.index(layer)}"

    def _convolution(self, layer: Conv2D, name: str) -> list[Any]:
        layers, found = self._keras.layers, []
        if not isinstance(layer.padding, str) and any(map(any, layer.padding)):
            found.append(layers.ZeroPadding2D(layer.padding, name=f"{name}>padding", **self._format))
        convolution = layers.Conv2D(
            layer.filters,
            layer.kernel,
            layer.stride,
            padding="same" if layer.padding == "same" else "valid",
            groups=layer.groups,
            kernel_initializer="zeros",
            name=name,
            **self._format,
        )
        return [*found, convolution]

    def _apply(self, tensors: Sequence[Any], x: Any, masks: Sequence[Any] | None) -> Any:
        """The output for canonical parameters, which Keras' variables stand in the order of."""
        model = self._inference if masks is None else self._training
        values = [
            tensor if axes is None else self._keras.ops.transpose(tensor, axes)
            for axes, tensor in zip(self._axes, tensors, strict=True)
        ]
        return model.stateless_call(values, [], [x, *(masks or ())], training=masks is not None)[0]

    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        if slot in self._slots:
            raise ValueError(f"slot {slot} is open already: close it before another forward")
        self.check_masks(masks)
        output, kept = self.derivatives.forward(x, masks)
        self._slots[slot] = (output, kept)
        return self.derivatives.array(output)

    def backward(self, slot: int, output_gradient: Array) -> Array | None:
        _, kept = self._slots.pop(slot)
        return self.derivatives.backward(kept, output_gradient)

    def loss_backward(self, slot: int, labels: NDArray[Any], divisor: float) -> LossResult:
        logits, kept = self._slots.pop(slot)
        loss, slope, correct = self.derivatives.loss(logits, labels, divisor)
        input_gradient = self.derivatives.backward(kept, slope)
        return LossResult(float(loss), int(correct), input_gradient)

    def infer(self, x: Array) -> Array:
        return self.derivatives.infer(x)

    def describe(self) -> dict[str, Any]:
        return {
            "keras": self._keras.__version__,
            "keras_backend": self.options.backend,
            "data_format": self._format["data_format"],
            "compiled_by_xla": self.options.jit_compile or self.options.backend == "jax",
            **self.derivatives.describe(),
        }


def native_facts(
    keras: Any, layer: Native, made: Any, input_shape: tuple[int, ...]
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The output shape of one sample, and the variables by name, of a native layer, which makes them when called."""
    images = len(input_shape) == 3

    def call(rows: Array) -> object:
        given = keras.ops.convert_to_tensor(rows.transpose(0, 2, 3, 1) if images else rows)
        output = made(given, training=True) if isinstance(made, keras.layers.Layer) else made(given)
        if not keras.ops.is_tensor(output):
            return output
        found = keras.ops.convert_to_numpy(output)
        return found.transpose(0, 3, 1, 2) if found.ndim == 4 else found

    try:
        output_shape = probe(layer, call, input_shape)
    finally:  # says more than what state does to a probe
        refuse_state(layer, [variable.name for variable in getattr(made, "non_trainable_variables", ())])
    names = [variable.name for variable in getattr(made, "trainable_variables", ())]
    unique = [name if names.count(name) == 1 else f"{name}.{place}" for place, name in enumerate(names)]
    return output_shape, dict(zip(unique, getattr(made, "trainable_variables", ()), strict=True))
