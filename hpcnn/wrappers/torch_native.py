"""PyTorch's own layers, for the torch wrapper: what one holds and gives, asked by calling it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from hpcnn.network.native import Native
from hpcnn.wrappers.contract import Array
from hpcnn.wrappers.native import completed, found_tensors, make_native, probe, refuse_precision, refuse_state

Tensor = torch.Tensor
Apply = Callable[[Tensor], Tensor]


def completed_by_torch(layer: Native, input_shape: tuple[int, ...]) -> Native:
    """The spec with its tensors and output shape."""
    made: list[Apply] = [make_native(layer, "torch") for _ in range(2)]
    values = [{name: tensor.detach().numpy() for name, tensor in tensors_of(layer, one).items()} for one in made]
    return completed(layer, found_tensors(values), shape_of(layer, made[0], input_shape))


def tensors_of(layer: Native, made: object) -> dict[str, torch.nn.Parameter]:
    """A native layer's own parameters; a function has none."""
    if not isinstance(made, torch.nn.Module):
        return {}
    refuse_state(layer, [name for name, _ in made.named_buffers()])
    own = dict(made.named_parameters())
    refuse_precision(layer, {name: str(tensor.dtype) for name, tensor in own.items() if tensor.dtype != torch.float32})
    return own


def shape_of(layer: Native, made: Apply, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The output shape of one sample, from rows that also show whether the layer keeps to the rules."""

    @torch.no_grad()
    def call(rows: Array) -> object:
        output = made(torch.from_numpy(rows))
        return output.numpy() if isinstance(output, Tensor) else output

    return probe(layer, call, input_shape)
