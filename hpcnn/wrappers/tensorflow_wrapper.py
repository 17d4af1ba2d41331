"""TensorFlow behind the contract: one tf.function of (flat weights, rows, masks), called under a tape a slot.

A tf.function that is called under an eager tape is split by TensorFlow into a forward that keeps what the backward
needs, and a backward: so nothing is computed twice, and any number of slots can be open. Weights go in and gradients
come out as one flat vector each, cut up and put together inside the function.

Images are channels-last inside, the only layout that TensorFlow convolves on CPUs. relu's slope at 0 is 0 and a max
pool's gradient goes to the first maximum, as rule 2 wants.
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
from hpcnn.wrappers.native import (
    check_native,
    completed,
    found_tensors,
    make_native,
    probe,
    refuse_layer,
    refuse_precision,
    refuse_state,
)
from hpcnn.wrappers.relus import relus_behind_pools
from hpcnn.wrappers.tensorflow_import import import_tensorflow, set_tensorflow_up
from hpcnn.wrappers.tensorflow_layers import (
    Apply,
    compared_max_pool,
    convolution,
    max_pool,
    to_channels_first,
    to_channels_last,
)

tf: Any = import_tensorflow()


class TensorflowSegment(SegmentModel):
    """A segment in TensorFlow on the CPU."""

    backend: ClassVar[str] = "tensorflow"
    capabilities: ClassVar[Capabilities] = Capabilities(weights_are_views=False)

    @classmethod
    def set_process_up(cls, options: Any, threads: int | None) -> None:
        set_tensorflow_up(options, threads)

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
        self._inference = self._compiled(self._network, [flat, rows[0]])
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
            return lambda x, of: tf.nn.relu(x)
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
        output_shape, own = _asked(layer, made, input_shape)
        check_native(layer, {name: tuple(variable.shape) for name, variable in own.items()}, output_shape)
        for parameter in self.segment.parameters:
            if parameter.layer == layer.name:
                views = parameter.view(self.weights), parameter.view(self.gradient)
                self._variables.append((*views, own[parameter.role]))
        apply: Apply = made
        return apply

    @classmethod
    def complete_native(cls, layer: Native, input_shape: tuple[int, ...]) -> Native:
        asked = [_asked(layer, make_native(layer, "tensorflow"), input_shape) for _ in range(2)]
        values = [{name: variable.numpy() for name, variable in own.items()} for _, own in asked]
        return completed(layer, found_tensors(values), asked[0][0])

    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        if slot in self._slots:
            raise ValueError(f"slot {slot} is open already: close it before another forward")
        self.check_masks(masks)
        flat, rows = self._flat(), tf.convert_to_tensor(x)
        variables = [variable for _, _, variable in self._variables]
        sources = [*variables, *[flat] * bool(self.segment.size), *[rows] * self.input_gradient]
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

    def _close(self, tape: Any, sources: list[Any], output: Any, output_gradient: Any) -> Array | None:
        """Add to the gradient, return the input's where wanted."""
        if not sources:
            return None
        # a segment of native layers alone does not use the flat vector
        gradients = tape.gradient(output, sources, output_gradient, tf.UnconnectedGradients.ZERO)
        found = [gradient.numpy() for gradient in gradients]
        input_gradient = np.ascontiguousarray(found.pop()) if self.input_gradient else None
        if self.segment.size:
            np.add(self.gradient, found.pop(), out=self.gradient)
        for (_, own, _), slope in zip(self._variables, found, strict=True):
            own += slope
        return input_gradient

    def infer(self, x: Array) -> Array:
        return _array(self._inference(self._flat(), tf.convert_to_tensor(x)))

    def _flat(self) -> Any:
        """The weights as they are now, also in the variables of native layers."""
        for values, _, variable in self._variables:
            variable.assign(values)
        return tf.convert_to_tensor(self.weights)

    def describe(self) -> dict[str, Any]:
        return {
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


def _asked(layer: Native, made: Any, input_shape: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The output shape of one sample, and the variables by name, of a native layer, which may make them when called."""

    def call(rows: Array) -> object:
        output = made(to_channels_last(tf.convert_to_tensor(rows)))
        return to_channels_first(output).numpy() if tf.is_tensor(output) else output

    output_shape = probe(layer, call, input_shape)
    trained = list(getattr(made, "trainable_variables", ()))
    refuse_state(layer, [one.name for one in getattr(made, "variables", ()) if all(one is not own for own in trained)])
    others = {one.name: one.dtype.name for one in trained if one.dtype != tf.float32}
    refuse_precision(layer, others)
    return output_shape, {one.name.split(":")[0].replace("/", "."): one for one in trained}


def _array(tensor: Any) -> Array:
    array: Array = tensor.numpy()
    return array
