"""torch.autograd.backward from a given gradient, without the symbolic algebra that PyTorch imports to check its shape.

That import (torch.fx.experimental.symbolic_shapes, and SymPy) takes 0.4 s of a core in the first backward of each
process, and is done only where a gradient is given: what has one element starts from 1 by itself.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


class _Product(torch.autograd.Function):
    """An element of which no value is wanted; its derivative by `output` is `gradient`."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return output.new_zeros(())

    @staticmethod
    def backward(ctx: Any, one: Tensor) -> tuple[Tensor, None]:
        return ctx.gradient, None


def backward(output: Tensor, gradient: Tensor) -> None:
    """Add to the `grad` of all that `output` came from. `gradient`: its own, of its shape."""
    _Product.apply(output, gradient).backward()  # type: ignore[no-untyped-call]
