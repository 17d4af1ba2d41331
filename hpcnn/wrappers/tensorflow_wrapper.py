"""TensorFlow behind the contract: one tf.function of (flat weights, rows, masks), called under a tape a slot.

A tf.function that is called under an eager tape is split by TensorFlow into a forward that keeps what the backward
needs, and a backward: so nothing is computed twice, and any number of slots can be open. Weights go in and gradients
come out as one flat vector each, cut up and put together inside the function.

Images are channels-last inside, the only layout that TensorFlow convolves on CPUs. relu's slope at 0 is 0 and a max
pool's gradient goes to the first maximum, as rule 2 wants.

NOTE: --device cuda has not been run on a GPU yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
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
from hpcnn.wrappers.native import check_native, make_native, refuse_layer
from hpcnn.wrappers.relus import relus_behind_pools
from hpcnn.wrappers.tensorflow_import import import_tensorflow, see_gpu, set_tensorflow_up
from hpcnn.wrappers.tensorflow_layers import (
    Apply,
    compared_max_pool,
    convolution,
    keeping_nan,
    max_pool,
    relu,
    shared,
    to_channels_first,
    to_channels_last,
)
from hpcnn.wrappers.tensorflow_native import asked, completed_by_tensorflow

tf: Any = import_tensorflow()


class TensorflowSegment(SegmentModel):
    """A segment in TensorFlow."""

    backend: ClassVar[str] = "tensorflow"
    capabilities: ClassVar[Capabilities] = Capabilities(weights_are_views=False, fuses_loss=True)

    @classmethod
    def set_process_up(cls, options: Any, threads: int | None) -> None:
        set_tensorflow_up(options, threads)

    @classmethod
    def use_device(cls, device: str) -> None:
        see_gpu(device == "cuda")

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
        shapes = (segment.input_shape, *segment.shapes)
        self._variables: list[tuple[Array, Array, Any]] = []
        order = relus_behind_pools(segment.layers)
        self._steps = [self._build(segment.layers[place], shapes[place]) for place in order]
        rows = [tf.TensorSpec((None, *shape)) for shape in (segment.input_shape, *(s.shape for s in segment.dropouts))]
        flat = tf.TensorSpec((segment.size,))
        self._training = self._compiled(self._network, [flat, *rows])
        self._inference = self._compiled(self._infer, [flat, rows[0]])
        labels, divisor = tf.TensorSpec((None,), tf.int64), tf.TensorSpec(())
        self.signature = [labels, divisor, flat, *rows]
        self.variables = [variable for _, _, variable in self._variables]
        self.fused = self._compiled(self._loss_and_gradients, self.signature)
        self._slots: dict[int, tuple[Any, list[Any], Any]] = {}

    def _compiled(self, function: Callable[..., Any], signature: list[Any]) -> Callable[..., Any]:
        if not self.options.function:
            return function
        compiled: Callable[..., Any] = tf.function(
            function, input_signature=signature, autograph=False, jit_compile=self.options.jit_compile or None
        )
        return compiled

    def _network(self, flat: Any, x: Any, *masks: Any) -> Any:
        """Layers on rows in the contract's layout; dropouts take their masks in order, or do nothing (inference)."""
        if not self.input_gradient:
            x = tf.stop_gradient(x)  # else a split function computes every gradient that there is
        waiting = iter([tf.stop_gradient(mask) for mask in masks])
        parameters = self._parameters(flat)
        x = to_channels_last(x)
        for apply in self._steps:
            if apply is not None:
                x = apply(x, parameters)
            elif masks:
                x = x * to_channels_last(next(waiting))
        return to_channels_first(x)

    def _infer(self, flat: Any, x: Any) -> Any:
        with keeping_nan():
            return self._network(flat, x)

    def _loss_and_gradients(self, labels: Any, divisor: Any, flat: Any, x: Any, *masks: Any) -> tuple[Any, Any, Any]:
        """As `_loss`, with the gradients of the sources in place of the logits'."""
        sources = self._sources(flat, x)
        tape = tf.GradientTape(watch_accessed_variables=False)
        with tape:
            tape.watch(sources)
            logits = self._network(flat, x, *masks)
        loss, slope, correct = _loss(logits, labels, divisor)
        return loss, tape.gradient(logits, sources, slope, tf.UnconnectedGradients.ZERO), correct

    def _sources(self, flat: Any, x: Any) -> list[Any]:
        """What gradients are taken of: native layers' variables, the flat vector, the rows."""
        return [*self.variables, *[flat] * bool(self.segment.size), *[x] * self.input_gradient]

    def _parameters(self, flat: Any) -> dict[str, Any]:
        """Tensors by name in TensorFlow's layouts: kernels height x width x in x out; dense ones stay out x in."""
        known = self.segment.parameters
        if not known:
            return {}
        pieces = tf.split(flat, [parameter.size for parameter in known])
        parameters = {}
        for parameter, piece in zip(known, pieces, strict=True):
            tensor = tf.reshape(piece, parameter.shape)
            parameters[parameter.name] = tf.transpose(tensor, (2, 3, 1, 0)) if len(parameter.shape) == 4 else tensor
        return parameters

    def _build(self, layer: Layer, input_shape: tuple[int, ...]) -> Callable[[Any, dict[str, Any]], Any] | None:
        """The layer as a function of its input and the parameters; None for dropout, a product with a mask."""
        kernel, bias = f"{layer.name}/kernel", f"{layer.name}/bias"
        if isinstance(layer, Conv2D):
            convolve = convolution(layer, input_shape)
            return lambda x, of: tf.nn.bias_add(convolve(x, of[kernel]), of[bias])
        if isinstance(layer, Dense):
            return lambda x, of: tf.nn.bias_add(tf.matmul(x, of[kernel], transpose_b=True), of[bias])
        if isinstance(layer, MaxPool2D):
            pool = (compared_max_pool if self.options.jit_compile else max_pool)(layer)
            return lambda x, of: pool(x)
        if isinstance(layer, AveragePool2D):
            return lambda x, of: tf.nn.avg_pool2d(x, layer.size, layer.stride, "VALID")
        if isinstance(layer, Flatten):
            return lambda x, of: tf.reshape(to_channels_first(x), (-1, int(np.prod(input_shape))))
        if isinstance(layer, ReLU):
            return lambda x, of: relu(x)
        if isinstance(layer, Tanh):
            return lambda x, of: tf.tanh(x)
        if isinstance(layer, Softmax):
            return lambda x, of: x
        if isinstance(layer, Dropout):
            return None
        if isinstance(layer, Native):
            made = self._native(layer, input_shape)
            return lambda x, of: made(x)
        raise refuse_layer("tensorflow", layer)

    def _native(self, layer: Native, input_shape: tuple[int, ...]) -> Apply:
        made = make_native(layer, "tensorflow")
        output_shape, own = asked(layer, made, input_shape)
        check_native(layer, {name: tuple(variable.shape) for name, variable in own.items()}, output_shape)
        for parameter in self.segment.parameters:
            if parameter.layer == layer.name:
                views = parameter.view(self.weights), parameter.view(self.gradient)
                self._variables.append((*views, own[parameter.role]))
        apply: Apply = made
        return apply

    @classmethod
    def complete_native(cls, layer: Native, input_shape: tuple[int, ...]) -> Native:
        return completed_by_tensorflow(layer, input_shape)

    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        if slot in self._slots:
            raise ValueError(f"slot {slot} is open already: close it before another forward")
        self.check_masks(masks)
        flat, rows = self.flat(), tf.convert_to_tensor(x)
        sources = self._sources(flat, rows)
        tape = tf.GradientTape(watch_accessed_variables=False)
        with tape:
            tape.watch(sources)
            output = self._training(flat, rows, *map(tf.convert_to_tensor, masks))
        self._slots[slot] = (tape, sources, output)
        return _array(output)

    def backward(self, slot: int, output_gradient: Array) -> Array | None:
        tape, sources, output = self._slots.pop(slot)
        return self._close(tape, sources, output, tf.convert_to_tensor(output_gradient))

    def loss_backward(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        tape, sources, logits = self._slots.pop(slot)
        loss, slope, correct = _loss(logits, tf.convert_to_tensor(labels), tf.constant(divisor, tf.float32))
        input_gradient = self._close(tape, sources, logits, slope)
        return LossResult(float(loss), int(correct), input_gradient)

    def forward_loss_backward(
        self, x: Array, masks: Sequence[Array], labels: NDArray[np.int64], divisor: float
    ) -> LossResult:
        self.check_masks(masks)
        given = tf.convert_to_tensor(labels), tf.constant(divisor, tf.float32), self.flat(), shared(x)
        loss, gradients, correct = self.fused(*given, *map(tf.convert_to_tensor, masks))
        return LossResult(float(loss), int(correct), self.add(gradients))

    def _close(self, tape: Any, sources: list[Any], output: Any, output_gradient: Any) -> Array | None:
        # a segment of native layers alone does not use the flat vector
        return self.add(tape.gradient(output, sources, output_gradient, tf.UnconnectedGradients.ZERO))

    def add(self, gradients: Sequence[Any]) -> Array | None:
        """Add what `_sources` got to the gradient, return the input's where wanted."""
        found = [gradient.numpy() for gradient in gradients]
        input_gradient = np.ascontiguousarray(found.pop()) if self.input_gradient else None
        if self.segment.size:
            np.add(self.gradient, found.pop(), out=self.gradient)
        for (_, own, _), slope in zip(self._variables, found, strict=True):
            own += slope
        return input_gradient

    def infer(self, x: Array) -> Array:
        return _array(self._inference(self.flat(), tf.convert_to_tensor(x)))

    def flat(self) -> Any:
        """The weights as they are now, also in the variables of native layers."""
        for values, _, variable in self._variables:
            variable.assign(values)
        return shared(self.weights)

    def describe(self) -> dict[str, Any]:
        return {
            "device": "cuda" if tf.config.get_visible_devices("GPU") else "cpu",
            "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
            "memory_format": "channels_last",
            "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "default"),
        }


@tf.function(  # type: ignore[untyped-decorator]
    input_signature=[tf.TensorSpec((None, None)), tf.TensorSpec((None,), tf.int64), tf.TensorSpec(())], autograph=False
)
def _loss(logits: Any, labels: Any, divisor: Any) -> tuple[Any, Any, Any]:
    """Sum of row losses, the logits' gradient over `divisor`, rows whose first largest logit is their label's."""
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    correct = tf.math.count_nonzero(tf.argmax(logits, 1) == labels)
    return loss, tape.gradient(loss, logits) / divisor, correct


def _array(tensor: Any) -> Array:
    array: Array = tensor.numpy()
    return array
