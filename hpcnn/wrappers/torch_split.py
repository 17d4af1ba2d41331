"""A backward in two halves in PyTorch: the input's gradient now, the weights' later, nothing computed twice.

Autograd computes of each operation only the gradients that somebody asks for. The first half asks for that of the
segment's input, and on its way keeps those of the outputs of layers with weights; the second goes back from each of
these through its one layer to the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

Tensor = torch.Tensor


class Cut(NamedTuple):
    """Where the output of a layer with weights stands in the graph: what is done to it in place later leaves it so."""

    node: Node
    output: int
    weights: Sequence[Tensor]

    @property
    def edge(self) -> GradientEdge:
        return GradientEdge(self.node, self.output)


class SecondHalf(NamedTuple):
    """What is left of the backward of one slot; a gradient is None where nothing came to it."""

    cuts: Sequence[Cut]
    at_cuts: Sequence[Tensor | None]
    whole: Sequence[Tensor]
    of_whole: Sequence[Tensor | None]

    def add_gradients(self) -> None:
        """Add each weight's to its `grad`, and free the graph."""
        for weight, gradient in zip(self.whole, self.of_whole, strict=True):
            _add(weight, gradient)
        for cut, gradient in zip(self.cuts, self.at_cuts, strict=True):
            if gradient is not None:
                found = torch.autograd.grad(cut.edge, cut.weights, gradient, allow_unused=True)
                for weight, own in zip(cut.weights, found, strict=True):
                    _add(weight, own)


def first_half(
    output: Tensor, gradient: Tensor, source: Tensor, cuts: Sequence[Cut], whole: Sequence[Tensor]
) -> tuple[Tensor | None, SecondHalf]:
    """The gradient of `source` (None where it needs none) from that of `output`, and what is left to do.

    `whole`: weights of layers that are not split, whose gradients are computed on the way and kept to be added later.
    """
    edges = [cut.edge for cut in cuts]
    ends = [tensor for tensor in (*whole, source) if tensor.requires_grad]
    wanted = [*edges, *map(get_gradient_edge, ends)]
    found: Sequence[Tensor | None] = [None] * len(wanted)
    if wanted and output.requires_grad:
        found = torch.autograd.grad(output, wanted, gradient, retain_graph=True, allow_unused=True)
    at_cuts, of_ends = found[: len(cuts)], found[len(cuts) :]
    if source.requires_grad:
        return of_ends[-1], SecondHalf(cuts, at_cuts, ends[:-1], of_ends[:-1])
    return None, SecondHalf(cuts, at_cuts, ends, of_ends)


def _add(weight: Tensor, gradient: Tensor | None) -> None:
    if gradient is not None and weight.grad is not None:
        weight.grad.add_(gradient)
