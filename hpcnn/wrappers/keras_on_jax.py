"""Keras over JAX: jax.vjp, compiled; what its forward keeps is a tree of arrays, which a slot holds.

XLA compiles each segment anew for each number of rows, in a second or more.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import xla_bridge  # has no public word for whether JAX runs already

from hpcnn.errors import BackendError
from hpcnn.network.layers import MaxPool2D
from hpcnn.wrappers.contract import Array, SegmentModel
from hpcnn.wrappers.keras_derivatives import Apply, Derivatives, LossAndSlope, loss_and_slope

_THREADS = "PJRT_NPROC"
"""The variable from which XLA's CPU client takes the size of its pools, once, as it starts."""


class JaxDerivatives(Derivatives):
    """Memory of the caller's, which JAX takes as it is, is copied where the caller may change it."""

    def __init__(self, model: SegmentModel, apply: Apply, ops: Any) -> None:
        super().__init__(model, apply, ops)
        self._forward = jax.jit(self._open)
        self._backward = jax.jit(_close)
        self._inference = jax.jit(lambda flat, x: apply(self._tensors(flat), x, None))

    @staticmethod
    def set_process_up(options: Any, threads: int | None) -> None:
        count, now = options.intra_op_threads or threads, os.environ.get(_THREADS)
        if count is None or str(count) == now:
            return
        if xla_bridge.backends_are_initialized():
            raise BackendError(
                f"JAX runs in this process already, with {now or 'as many as it likes'} threads, not {count}: start "
                "another process"
            )
        os.environ[_THREADS] = str(count)

    @staticmethod
    def max_pool(layer: MaxPool2D, options: Any) -> Callable[[Any], Any]:
        return max_pool(layer)

    def _tensors(self, flat: Any) -> list[Any]:
        return [flat[parameter.span].reshape(parameter.shape) for parameter in self.model.segment.parameters]

    def _open(self, flat: Any, x: Any, masks: Sequence[Any]) -> Any:
        tensors = self._tensors(flat)
        if self.model.input_gradient:
            return jax.vjp(lambda tensors, x: self.apply(tensors, x, masks), tensors, x)
        return jax.vjp(lambda tensors: self.apply(tensors, x, masks), tensors)

    def forward(self, x: Array, masks: Sequence[Array]) -> tuple[Any, Any]:
        output, pullback = self._forward(self.model.weights.copy(), x, list(masks))
        return output, pullback

    def backward(self, kept: Any, slope: Any) -> Array | None:
        flat, *rest = self._backward(kept, slope)
        if self.model.segment.size:
            np.add(self.model.gradient, flat, out=self.model.gradient)
        return self.array(rest[0]) if rest else None

    @staticmethod
    @functools.cache
    def compiled_loss(ops: Any, classes: int) -> Callable[..., LossAndSlope]:
        loss: Callable[..., LossAndSlope] = jax.jit(functools.partial(loss_and_slope, ops, classes))
        return loss

    def loss(self, logits: Any, labels: Any, divisor: float) -> LossAndSlope:
        assert self._loss is not None
        return self._loss(logits, labels.astype(np.int32), np.float32(divisor))

    def infer(self, x: Array) -> Array:
        return self.array(self._inference(self.model.weights.copy(), x))

    @staticmethod
    def array(tensor: Any) -> Array:
        array: Array = np.asarray(tensor)
        return array

    @staticmethod
    def describe() -> dict[str, Any]:
        return {"jax": jax.__version__, "threads": os.environ.get(_THREADS, "as many as it likes")}


def _close(pullback: Any, slope: Any) -> tuple[Any, ...]:
    """Gradients by the flat weights and, where there is one, by the input."""
    tensors, *rest = pullback(slope)
    return jnp.concatenate([tensor.ravel() for tensor in tensors]) if tensors else (), *rest


def max_pool(layer: MaxPool2D) -> Callable[[Any], Any]:
    """A max pool of images (n, h, w, c) whose backward is comparisons and additions of whole images, one a place in the
    window.

    XLA's own, a select-and-scatter, takes ten times as long on CPUs. Both go to the first maximum. XLA's forward on
    CPUs loses nan in a vector; the sum of a window, of which nothing is added, is nan where one of its numbers is."""
    (high, wide), (down, right) = layer.size, layer.stride

    def over_windows(x: Any, start: float, operation: Any) -> Any:
        return lax.reduce_window(x, start, operation, (1, high, wide, 1), (1, down, right, 1), "VALID")

    def pooled(x: Any) -> Any:
        return forward(x)[0]

    def forward(x: Any) -> tuple[Any, Any]:
        output = over_windows(x, -jnp.inf, lax.max)
        return output + 0.0 * over_windows(x, 0.0, lax.add), (x, output)

    def backward(kept: Any, slope: Any) -> tuple[Any]:
        x, output = kept
        _, height, width, _ = x.shape
        rows, columns = (output.shape[1] - 1) * down + 1, (output.shape[2] - 1) * right + 1
        gradient, taken = jnp.zeros_like(x), jnp.zeros(output.shape, bool)
        for top in range(high):
            for left in range(wide):
                here = x[:, top : top + rows : down, left : left + columns : right]
                first = (here == output) & ~taken
                taken |= first
                around = (top, height - top - rows, down - 1), (left, width - left - columns, right - 1)
                gradient += lax.pad(jnp.where(first, slope, 0), 0.0, ((0, 0, 0), *around, (0, 0, 0)))
        return (gradient,)

    pool: Any = jax.custom_vjp(pooled)
    pool.defvjp(forward, backward)
    apply: Callable[[Any], Any] = pool
    return apply
