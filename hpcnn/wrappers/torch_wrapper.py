"""PyTorch behind the contract: parameters and their gradients are views of the caller's vectors.

Activations are kept channels-last, in which oneDNN's convolutions are fastest on CPUs (a first convolution of one
channel included, whose input has to be told, since with one channel both layouts are the same memory). torch agrees
with rule 2 as it is: relu's slope at 0 is 0, and a pool's gradient goes to the first maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

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

Tensor = torch.Tensor
Apply = Callable[[Tensor], Tensor]


class TorchSegment(SegmentModel):
    """A segment in eager PyTorch on the CPU."""

    backend: ClassVar[str] = "torch"
    capabilities: ClassVar[Capabilities] = Capabilities(weights_are_views=True)

    @classmethod
    def set_process_up(cls, options: Any, threads: int | None) -> None:
        intra, inter = options.intra_op_threads or threads, options.inter_op_threads
        if intra is not None:
            torch.set_num_threads(intra)
        if inter is None or inter == torch.get_num_interop_threads():
            return
        try:
            torch.set_num_interop_threads(inter)
        except RuntimeError:
            now = torch.get_num_interop_threads()
            raise BackendError(
                f"torch runs in this process already, with {now} inter-op threads, not {inter}: start another process"
            ) from None

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
        flat_weights, flat_gradient = torch.from_numpy(weights), torch.from_numpy(gradient)
        self._parameters: dict[str, Tensor] = {}
        for parameter in segment.parameters:
            place = slice(parameter.offset, parameter.offset + int(np.prod(parameter.shape)))
            leaf = flat_weights[place].view(parameter.shape).requires_grad_()
            # Autograd adds into a gradient that is there already: accumulation, in the caller's memory.
            leaf.grad = flat_gradient[place].view(parameter.shape)
            self._parameters[parameter.name] = leaf
        self._modules: list[torch.nn.Module] = []
        shapes = (segment.input_shape, *segment.shapes)
        order = relus_behind_pools(segment.layers)
        self._steps = [self._build(segment.layers[place], shapes[place]) for place in order]
        self._make_relus_cheap([segment.layers[place] for place in order])
        self._run: Callable[..., Tensor] = self._apply
        if self.options.compile:
            self._run = torch.compile(self._apply, mode=self.options.compile_mode)
        self._slots: dict[int, tuple[Tensor, Tensor]] = {}

    def _build(self, layer: Layer, input_shape: tuple[int, ...]) -> Apply | None:
        """The layer as a function of its input; None for dropout, which is a product with a mask."""
        if isinstance(layer, Conv2D):
            return self._convolution(layer, input_shape)
        if isinstance(layer, Dense):
            kernel, bias = self._parameters[f"{layer.name}/kernel"], self._parameters[f"{layer.name}/bias"]
            return lambda x: F.linear(x, kernel, bias)
        if isinstance(layer, MaxPool2D):
            return lambda x: F.max_pool2d(x, layer.size, layer.stride)
        if isinstance(layer, AveragePool2D):
            return lambda x: F.avg_pool2d(x, layer.size, layer.stride)
        if isinstance(layer, Flatten):
            return lambda x: x.flatten(1)
        if isinstance(layer, ReLU):
            return F.relu
        if isinstance(layer, Tanh):
            return torch.tanh
        if isinstance(layer, Softmax):
            return lambda x: x
        if isinstance(layer, Dropout):
            return None
        if isinstance(layer, Native):
            return self._native(layer, input_shape)
        raise refuse_layer("torch", layer)

    def _make_relus_cheap(self, layers: Sequence[Layer]) -> None:
        """In place behind what does not need its output to go backward: the same bits, less memory to go through."""
        for place in range(1, len(layers)):
            if isinstance(layers[place], ReLU) and isinstance(layers[place - 1], Conv2D | Dense | MaxPool2D):
                self._steps[place] = F.relu_

    def _native(self, layer: Native, input_shape: tuple[int, ...]) -> Apply:
        made: Apply = make_native(layer, "torch")
        own = _tensors(layer, made)
        shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
        check_native(layer, shapes, _shape_of(layer, made, input_shape))
        for name, tensor in own.items():
            leaf = self._parameters[f"{layer.name}/{name}"]
            tensor.data, tensor.grad = leaf.detach(), leaf.grad
        if isinstance(made, torch.nn.Module):
            self._modules.append(made)
        return made

    @classmethod
    def complete_native(cls, layer: Native, input_shape: tuple[int, ...]) -> Native:
        made: list[Apply] = [make_native(layer, "torch") for _ in range(2)]
        values = [{name: tensor.detach().numpy() for name, tensor in _tensors(layer, one).items()} for one in made]
        return completed(layer, found_tensors(values), _shape_of(layer, made[0], input_shape))

    def _convolution(self, layer: Conv2D, input_shape: tuple[int, ...]) -> Apply:
        kernel, bias = self._parameters[f"{layer.name}/kernel"], self._parameters[f"{layer.name}/bias"]
        (top, bottom), (left, right) = resolved_padding(layer, input_shape)
        if top == bottom and left == right:
            return lambda x: F.conv2d(x, kernel, bias, layer.stride, (top, left), 1, layer.groups)
        padding = (left, right, top, bottom)
        return lambda x: F.conv2d(F.pad(x, padding), kernel, bias, layer.stride, 0, 1, layer.groups)

    def _input(self, x: Array) -> Tensor:
        tensor = torch.from_numpy(x)
        if tensor.dim() != 4 or not self.options.channels_last:
            return tensor
        _, channels, height, width = tensor.shape
        if channels == 1:
            return tensor.as_strided(tensor.shape, (height * width, 1, width, 1))
        return tensor.contiguous(memory_format=torch.channels_last)

    def _apply(self, x: Tensor, masks: Sequence[Tensor] | None) -> Tensor:
        """All layers; dropouts take their masks in order, or do nothing where there are none (inference)."""
        waiting = iter(masks or ())
        for apply in self._steps:
            if apply is not None:
                x = apply(x)
            elif masks is not None:
                x = x * next(waiting)
        return x

    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        if slot in self._slots:
            raise ValueError(f"slot {slot} is open already: close it before another forward")
        self.check_masks(masks)
        source = self._input(x).requires_grad_(self.input_gradient)
        output = self._run(source, [torch.from_numpy(mask) for mask in masks])
        self._slots[slot] = (source, output)
        return _array(output)

    def backward(self, slot: int, output_gradient: Array) -> Array | None:
        source, output = self._slots.pop(slot)
        if output.requires_grad:
            torch.autograd.backward(output, torch.from_numpy(output_gradient))
        return self._taken(source)

    def loss_backward(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        source, logits = self._slots.pop(slot)
        targets = torch.from_numpy(labels)
        loss = F.cross_entropy(logits, targets, reduction="sum")
        if loss.requires_grad:
            torch.autograd.backward(loss, torch.tensor(1.0 / divisor))
        correct = int((logits.detach().argmax(1) == targets).sum())
        return LossResult(float(loss.detach()), correct, self._taken(source))

    def _taken(self, source: Tensor) -> Array | None:
        return None if source.grad is None else _array(source.grad)

    @torch.inference_mode()
    def infer(self, x: Array) -> Array:
        for module in self._modules:
            module.eval()
        output = _array(self._run(self._input(x), None))
        for module in self._modules:
            module.train()
        return output

    def describe(self) -> dict[str, Any]:
        return {
            "threads": torch.get_num_threads(),
            "inter_op_threads": torch.get_num_interop_threads(),
            "memory_format": "channels_last" if self.options.channels_last else "channels_first",
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        }


def _array(tensor: Tensor) -> Array:
    """Rows first and C-contiguous, as the contract wants it; a copy only where the memory is laid out otherwise."""
    array: Array = tensor.detach().contiguous().numpy()
    return array


def _tensors(layer: Native, made: object) -> dict[str, torch.nn.Parameter]:
    """A native layer's own parameters; a function has none."""
    if not isinstance(made, torch.nn.Module):
        return {}
    refuse_state(layer, [name for name, _ in made.named_buffers()])
    own = dict(made.named_parameters())
    refuse_precision(layer, {name: str(tensor.dtype) for name, tensor in own.items() if tensor.dtype != torch.float32})
    return own


def _shape_of(layer: Native, made: Apply, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The output shape of one sample, from rows that also show whether the layer keeps to the rules."""

    @torch.no_grad()
    def call(rows: Array) -> object:
        output = made(torch.from_numpy(rows))
        return output.numpy() if isinstance(output, Tensor) else output

    return probe(layer, call, input_shape)
