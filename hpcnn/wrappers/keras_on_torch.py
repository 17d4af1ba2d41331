"""Keras over PyTorch: eager autograd, on parameters whose gradients are views of the caller's vector.

Axes are Keras' channels_first, PyTorch's own, over memory that is channels-last, in which CPUs convolve fastest: so
nothing is permuted on the way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from hpcnn.errors import BackendError
from hpcnn.wrappers.contract import Array, SegmentModel
from hpcnn.wrappers.keras_derivatives import Apply, Derivatives, LossAndSlope, loss_and_slope
from hpcnn.wrappers.torch_backward import backward

Tensor = torch.Tensor


class TorchDerivatives(Derivatives):
    """A slot keeps the input and the output."""

    data_format: ClassVar[str] = "channels_first"

    def __init__(self, model: SegmentModel, apply: Apply, ops: Any) -> None:
        super().__init__(model, apply, ops)
        flat, flat_gradient = torch.from_numpy(model.weights), torch.from_numpy(model.gradient)
        self.leaves: list[torch.nn.Parameter] = []
        for parameter in model.segment.parameters:
            leaf = torch.nn.Parameter(flat[parameter.span].view(parameter.shape))
            leaf.grad = flat_gradient[parameter.span].view(parameter.shape)  # autograd adds to what is there
            self.leaves.append(leaf)
        self.in_training: Callable[..., Tensor] = functools.partial(apply, self.leaves)
        """What a forward calls: of hpcnn.wrappers.torch_ddp where ranks add within torch."""

    @staticmethod
    def set_process_up(options: Any, threads: int | None) -> None:
        if options.jit_compile:
            raise BackendError(
                "[backend.keras] jit_compile is not for Keras over torch, which has no XLA: leave it out"
            )
        if (count := options.intra_op_threads or threads) is not None:
            torch.set_num_threads(count)

    @staticmethod
    def _input(x: Array) -> Tensor:
        tensor = torch.from_numpy(x)
        if tensor.dim() != 4:
            return tensor
        _, channels, height, width = tensor.shape
        if channels == 1:  # both layouts are the same memory, and torch has to be told which it is
            return tensor.as_strided(tensor.shape, (height * width, 1, width, 1))
        return tensor.contiguous(memory_format=torch.channels_last)

    def forward(self, x: Array, masks: Sequence[Array]) -> tuple[Tensor, Any]:
        source = self._input(x).requires_grad_(self.model.input_gradient)
        output = self.in_training(source, [torch.from_numpy(mask) for mask in masks])
        return output, (source, output)

    def backward(self, kept: Any, slope: Any) -> Array | None:
        source, output = kept
        if output.requires_grad:
            backward(output, torch.as_tensor(slope))
        return None if source.grad is None else self.array(source.grad)

    @staticmethod
    def compiled_loss(ops: Any, classes: int) -> Callable[..., LossAndSlope]:
        return functools.partial(loss_and_slope, ops, classes)

    def loss(self, logits: Tensor, labels: Any, divisor: float) -> LossAndSlope:
        assert self._loss is not None
        return self._loss(logits.detach(), torch.from_numpy(labels), divisor)

    @torch.inference_mode()
    def infer(self, x: Array) -> Array:
        return self.array(self.apply(self.leaves, self._input(x), None))

    @staticmethod
    def array(tensor: Tensor) -> Array:
        array: Array = tensor.detach().contiguous().numpy()
        return array

    @staticmethod
    def describe() -> dict[str, Any]:
        return {"threads": torch.get_num_threads(), "cpu_capability": torch.backends.cpu.get_cpu_capability()}
