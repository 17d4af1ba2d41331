"""PyTorch behind the contract: parameters and their gradients are views of the caller's vectors.

Activations are kept channels-last, in which oneDNN's convolutions are fastest on CPUs (a first convolution of one
channel included, whose input has to be told, since with one channel both layouts are the same memory). torch agrees
with rule 2 as it is: relu's slope at 0 is 0, and a pool's gradient goes to the first maximum.

NOTE: --device cuda has not been run on a GPU yet; its copies to and fro are tested with a CPU as the other device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from hpcnn.errors import BackendError
from hpcnn.network.architecture import Segment
from hpcnn.network.layers import Conv2D, Dense, Layer
from hpcnn.network.native import Native
from hpcnn.wrappers.contract import CUDA_ENVIRONMENT, Array, Capabilities, LossResult, SegmentModel
from hpcnn.wrappers.native import check_native, make_native
from hpcnn.wrappers.relus import relus_behind_pools
from hpcnn.wrappers.torch_backward import backward
from hpcnn.wrappers.torch_layers import Apply, layer_function, make_relus_cheap
from hpcnn.wrappers.torch_native import completed_by_torch, shape_of, tensors_of
from hpcnn.wrappers.torch_split import Cut, SecondHalf, first_half
from hpcnn.wrappers.torch_vectors import Copied, Shared, on_gpu

Tensor = torch.Tensor


class TorchSegment(SegmentModel):
    """A segment in eager PyTorch."""

    backend: ClassVar[str] = "torch"
    capabilities: ClassVar[Capabilities] = Capabilities(weights_are_views=True, can_split_backward=True)
    place_vectors: ClassVar[Callable[[Array, Array], Shared]] = Shared

    @classmethod
    def use_device(cls, device: str) -> None:
        cls.place_vectors = Shared
        if device == "cpu":
            return
        if not torch.cuda.is_available():
            raise BackendError(
                f"--device cuda: torch {torch.__version__} sees no GPU: {CUDA_ENVIRONMENT}, or leave --device out"
            )
        if (count := torch.cuda.device_count()) != 1:
            raise BackendError(
                f"--device cuda: torch runs in this process already and sees {count} GPUs, of which a rank takes one: "
                "start another process"
            )
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # 10 bits of a float32's 23
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS may add in any order
        cls.place_vectors = on_gpu

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
        self.vectors = type(self).place_vectors(weights, gradient)
        self.kept = self.vectors if isinstance(self.vectors, Copied) else None
        self._parameters: dict[str, Tensor] = {}
        for parameter in segment.parameters:
            place = slice(parameter.offset, parameter.offset + int(np.prod(parameter.shape)))
            leaf = torch.nn.Parameter(self.vectors.weights[place].view(parameter.shape))
            # Autograd adds into a gradient that is there already: accumulation, where possible in the caller's memory.
            leaf.grad = self.vectors.gradient[place].view(parameter.shape)
            self._parameters[parameter.name] = leaf
        self._modules: list[torch.nn.Module] = []
        shapes = (segment.input_shape, *segment.shapes)
        order = relus_behind_pools(segment.layers)
        layers = [segment.layers[place] for place in order]
        self._steps = [self._build(layer, shapes[place]) for layer, place in zip(layers, order, strict=True)]
        make_relus_cheap(layers, self._steps)
        self._weights_of_steps = [self._weights_of(layer) for layer in layers]
        # Never asked for their weights' gradients alone: a layer of another's may hold others within, and the process
        # would end in torch's kernel of group_norm for channels-last images.
        with_weights = [layer for layer in layers if isinstance(layer, Conv2D | Dense | Native)]
        self._source_needs_gradient = self.input_gradient or isinstance(next(iter(with_weights), None), Native)
        self._weights_of_natives = [
            self._parameters[parameter.name]
            for parameter in segment.parameters
            if isinstance(segment.layers[parameter.layer_index - segment.start], Native)
        ]
        self._run: Callable[..., Tensor] = self._apply
        if self.options.compile:
            self._run = torch.compile(self._apply, mode=self.options.compile_mode)
        self.leaves = list(self._parameters.values())
        self.in_training = self._run
        """What a forward calls that a backward follows: of hpcnn.wrappers.torch_ddp where ranks add within torch."""
        self._slots: dict[int, tuple[Tensor, Tensor, list[Cut]]] = {}
        self._second_halves: dict[int, SecondHalf] = {}

    def _build(self, layer: Layer, input_shape: tuple[int, ...]) -> Apply | None:
        if isinstance(layer, Native):
            return self._native(layer, input_shape)
        return layer_function(layer, input_shape, *self._weights_of(layer))

    def _weights_of(self, layer: Layer) -> tuple[Tensor, ...]:
        if isinstance(layer, Conv2D | Dense):
            return self._parameters[f"{layer.name}/kernel"], self._parameters[f"{layer.name}/bias"]
        return ()

    def _native(self, layer: Native, input_shape: tuple[int, ...]) -> Apply:
        made: Apply = make_native(layer, "torch")
        own = tensors_of(layer, made)
        shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
        check_native(layer, shapes, shape_of(layer, made, input_shape))
        for name, tensor in own.items():
            leaf = self._parameters[f"{layer.name}/{name}"]
            tensor.data, tensor.grad = leaf.detach(), leaf.grad
            self._parameters[f"{layer.name}/{name}"] = tensor
        if isinstance(made, torch.nn.Module):
            self._modules.append(made)
        return made

    @classmethod
    def complete_native(cls, layer: Native, input_shape: tuple[int, ...]) -> Native:
        return completed_by_torch(layer, input_shape)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.vectors.device)

    def _input(self, x: Array) -> Tensor:
        tensor = self._tensor(x)
        if tensor.dim() != 4 or not self.options.channels_last:
            return tensor
        _, channels, height, width = tensor.shape
        if channels == 1:
            return tensor.as_strided(tensor.shape, (height * width, 1, width, 1))
        return tensor.contiguous(memory_format=torch.channels_last)

    def _apply(self, x: Tensor, masks: Sequence[Tensor] | None, cuts: list[Cut] | None = None) -> Tensor:
        """All layers; dropouts take their masks in order, or do nothing where there are none (inference).

        `cuts` gets the outputs of those whose backward can be split."""
        waiting = iter(masks or ())
        for apply, weights in zip(self._steps, self._weights_of_steps, strict=True):
            if apply is not None:
                x = apply(x)
            elif masks is not None:
                x = x * next(waiting)
            if weights and cuts is not None and x.grad_fn is not None:
                cuts.append(Cut(x.grad_fn, x.output_nr, weights))
        return x

    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        if slot in self._slots or slot in self._second_halves:
            raise ValueError(f"slot {slot} is open already: close it before another forward")
        self.check_masks(masks)
        self.vectors.fetch()
        source = self._input(x).requires_grad_(self._source_needs_gradient)
        cuts: list[Cut] = []
        given = [self._tensor(mask) for mask in masks]
        output = self.in_training(source, given, None if self.options.compile else cuts)
        self._slots[slot] = (source, output, cuts)
        return _array(output)

    def backward(self, slot: int, output_gradient: Array) -> Array | None:
        source, output, _ = self._slots.pop(slot)
        if output.requires_grad:
            backward(output, self._tensor(output_gradient))
            self.vectors.give()
        return self._returned(source.grad)

    def loss_backward(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        source, logits, _ = self._slots.pop(slot)
        loss, correct = _loss(logits, self._tensor(labels))
        if loss.requires_grad:
            backward(loss, loss.new_tensor(1.0 / divisor))
            self.vectors.give()
        return LossResult(float(loss.detach()), correct, self._returned(source.grad))

    def check_split(self) -> None:
        super().check_split()
        if self.options.compile:
            raise BackendError(
                "torch with compile = true computes both halves of a backward at once: "
                "leave [backend.torch] compile out, or choose another --schedule"
            )

    def backward_input(self, slot: int, output_gradient: Array) -> Array | None:
        self.check_split()
        source, output, cuts = self._slots.pop(slot)
        return self._first_half(slot, output, self._tensor(output_gradient), source, cuts)

    def loss_backward_input(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        self.check_split()
        source, logits, cuts = self._slots.pop(slot)
        loss, correct = _loss(logits, self._tensor(labels))
        input_gradient = self._first_half(slot, loss, loss.new_tensor(1.0 / divisor), source, cuts)
        return LossResult(float(loss.detach()), correct, input_gradient)

    def _first_half(
        self, slot: int, output: Tensor, gradient: Tensor, source: Tensor, cuts: Sequence[Cut]
    ) -> Array | None:
        found, self._second_halves[slot] = first_half(output, gradient, source, cuts, self._weights_of_natives)
        return self._returned(found)

    def backward_weights(self, slot: int) -> None:
        self._second_halves.pop(slot).add_gradients()
        self.vectors.give()

    def _returned(self, input_gradient: Tensor | None) -> Array | None:
        return _array(input_gradient) if self.input_gradient and input_gradient is not None else None

    @torch.inference_mode()
    def infer(self, x: Array) -> Array:
        self.vectors.fetch()
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
            "device": torch.cuda.get_device_name() if self.vectors.device.type == "cuda" else "cpu",
            "memory_format": "channels_last" if self.options.channels_last else "channels_first",
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        }


def _array(tensor: Tensor) -> Array:
    """Rows first and C-contiguous, as the contract wants it; a copy only where the memory is laid out otherwise."""
    array: Array = tensor.detach().contiguous().cpu().numpy()
    return array


def _loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    """The sum of row losses, and the rows classified rightly."""
    loss = F.cross_entropy(logits, targets, reduction="sum")
    return loss, int((logits.detach().argmax(1) == targets).sum())
