"""Keras over TensorFlow: a tf.function called under an eager tape, which TensorFlow splits into forward and backward.

See hpcnn.wrappers.tensorflow_wrapper, which does the same with operations of its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from hpcnn.network.layers import MaxPool2D
from hpcnn.wrappers.contract import Array, SegmentModel
from hpcnn.wrappers.keras_derivatives import Apply, Derivatives, LossAndSlope, loss_and_slope
from hpcnn.wrappers.tensorflow_import import import_tensorflow, see_gpu, set_tensorflow_up
from hpcnn.wrappers.tensorflow_layers import compared_max_pool, keeping_nan, max_pool, relu

tf: Any = import_tensorflow()


class TensorflowDerivatives(Derivatives):
    """Weights go in and gradients come out as one flat vector."""

    activations = MappingProxyType({"relu": relu})

    def __init__(self, model: SegmentModel, apply: Apply, ops: Any) -> None:
        super().__init__(model, apply, ops)
        segment = model.segment
        rows = [tf.TensorSpec((None, *shape)) for shape in (segment.input_shape, *(s.shape for s in segment.dropouts))]
        flat = tf.TensorSpec((segment.size,))
        self._training = self._compiled(self._train, [flat, *rows])
        self._inference = self._compiled(self._infer, [flat, rows[0]])
        self.signature = [tf.TensorSpec((None,), tf.int64), tf.TensorSpec(()), flat, *rows]
        self.variables: list[Any] = []
        self.fused = self._compiled(self._loss_and_gradients, self.signature)

    def _compiled(self, function: Callable[..., Any], signature: list[Any]) -> Any:
        jit = self.model.options.jit_compile or None
        return tf.function(function, input_signature=signature, autograph=False, jit_compile=jit)

    @staticmethod
    def set_process_up(options: Any, threads: int | None) -> None:
        set_tensorflow_up(options, threads)
        see_gpu(False)

    @staticmethod
    def max_pool(layer: MaxPool2D, options: Any) -> Callable[[Any], Any]:
        return (compared_max_pool if options.jit_compile else max_pool)(layer)

    def _train(self, flat: Any, x: Any, *masks: Any) -> Any:
        if not self.model.input_gradient:
            x = tf.stop_gradient(x)  # else a split function computes every gradient that there is
        return self.apply(self._tensors(flat), x, [tf.stop_gradient(mask) for mask in masks])

    def _infer(self, flat: Any, x: Any) -> Any:
        with keeping_nan():
            return self.apply(self._tensors(flat), x, None)

    def _tensors(self, flat: Any) -> list[Any]:
        known = self.model.segment.parameters
        pieces = tf.split(flat, [parameter.size for parameter in known]) if known else ()
        return [tf.reshape(piece, parameter.shape) for piece, parameter in zip(pieces, known, strict=True)]

    def forward(self, x: Array, masks: Sequence[Array]) -> tuple[Any, Any]:
        flat, rows = tf.convert_to_tensor(self.model.weights), tf.convert_to_tensor(x)
        sources = [flat] * bool(self.model.segment.size) + [rows] * self.model.input_gradient
        tape = tf.GradientTape(watch_accessed_variables=False)
        with tape:
            tape.watch(sources)
            output = self._training(flat, rows, *map(tf.convert_to_tensor, masks))
        return output, (tape, sources, output)

    def backward(self, kept: Any, slope: Any) -> Array | None:
        tape, sources, output = kept
        if not sources:
            return None
        found = [gradient.numpy() for gradient in tape.gradient(output, sources, tf.convert_to_tensor(slope))]
        if self.model.segment.size:
            np.add(self.model.gradient, found[0], out=self.model.gradient)
        return np.ascontiguousarray(found[-1]) if self.model.input_gradient else None

    def _loss_and_gradients(self, labels: Any, divisor: Any, flat: Any, x: Any, *masks: Any) -> tuple[Any, Any, Any]:
        """As of hpcnn.wrappers.tensorflow_strategy.Replicable."""
        assert self._loss is not None  # a network has its loss
        tape = tf.GradientTape(watch_accessed_variables=False)
        with tape:
            tape.watch(flat)
            logits = self._train(flat, x, *masks)
        loss, slope, correct = self._loss(logits, labels, divisor)
        return loss, [tape.gradient(logits, flat, slope)], correct

    def flat(self) -> Any:
        """The weights as they are now."""
        return tf.convert_to_tensor(self.model.weights)

    def add(self, gradients: Sequence[Any]) -> None:
        """To the model's gradient, the only one."""
        np.add(self.model.gradient, gradients[0].numpy(), out=self.model.gradient)

    @staticmethod
    @functools.cache
    def compiled_loss(ops: Any, classes: int) -> Callable[..., LossAndSlope]:
        signature = [tf.TensorSpec((None, classes)), tf.TensorSpec((None,), tf.int64), tf.TensorSpec(())]
        loss: Callable[..., LossAndSlope] = tf.function(
            functools.partial(loss_and_slope, ops, classes), input_signature=signature, autograph=False
        )
        return loss

    def loss(self, logits: Any, labels: Any, divisor: float) -> LossAndSlope:
        assert self._loss is not None
        return self._loss(logits, labels, tf.constant(divisor, tf.float32))

    def infer(self, x: Array) -> Array:
        return self.array(self._inference(tf.convert_to_tensor(self.model.weights), tf.convert_to_tensor(x)))

    @staticmethod
    def array(tensor: Any) -> Array:
        array: Array = tensor.numpy()
        return array

    @staticmethod
    def describe() -> dict[str, Any]:
        return {
            "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
            "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "default"),
        }
