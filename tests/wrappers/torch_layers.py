"""Layers of PyTorch that have several within, for the tests of native layers."""

from __future__ import annotations

import torch


class Residual(torch.nn.Module):
    """Two convolutions that keep the shape, around which the input goes too, and a scale of the whole; one is fixed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.scale = torch.nn.Parameter(torch.full((channels, 1, 1), 0.5))
        self.fixed = torch.nn.Parameter(torch.full((channels, 1, 1), 2.0), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner: torch.Tensor = self.second(torch.tanh(self.first(x)))
        return self.fixed * x + self.scale * inner


class HalfUsed(torch.nn.Module):
    """Two scales, of which one has no part in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.used = torch.nn.Parameter(torch.ones(1))
        self.left = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.used
