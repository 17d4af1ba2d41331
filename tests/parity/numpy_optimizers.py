"""The updates of the design's rule 2 once more, in float64 NumPy: what ours are held against."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # float64 arrays throughout


class Optimizer:
    """Weights are returned, not changed. `decoupled` weight decay acts on the weights, coupled on the gradient."""

    def __init__(
        self, learning_rate: float, *, decay: float = 0.0, weight_decay: float = 0.0, decoupled: bool = True
    ) -> None:
        self.learning_rate, self.decay = learning_rate, decay
        self.weight_decay, self.decoupled = weight_decay, decoupled
        self.steps = 0

    def step(self, weights: Array, gradient: Array) -> Array:
        eta = self.learning_rate / (1 + self.decay * self.steps)
        self.steps += 1
        w, g = np.asarray(weights, dtype=np.float64), np.asarray(gradient, dtype=np.float64)
        if self.decoupled:
            return w - eta * self.weight_decay * w + self.change(g, eta)
        return w + self.change(g + self.weight_decay * w, eta)


class SGD(Optimizer):
    """v = mu v - eta g, then w += v, or with Nesterov w += mu v - eta g."""

    def __init__(self, learning_rate: float, *, momentum: float = 0.0, nesterov: bool = False, **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self.momentum, self.nesterov = momentum, nesterov
        self.velocity: Array = 0.0

    def change(self, g: Array, eta: float) -> Array:
        self.velocity = self.momentum * self.velocity - eta * g
        return self.momentum * self.velocity - eta * g if self.nesterov else self.velocity


class Adam(Optimizer):
    """Kingma and Ba (ICLR 2015), algorithm 1: epsilon is added after bias correction."""

    def __init__(
        self, learning_rate: float, *, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8, **options: Any
    ) -> None:
        super().__init__(learning_rate, **options)
        self.betas, self.epsilon = betas, epsilon
        self.first: Array = 0.0
        self.second: Array = 0.0

    def change(self, g: Array, eta: float) -> Array:
        b1, b2 = self.betas
        self.first = b1 * self.first + (1 - b1) * g
        self.second = b2 * self.second + (1 - b2) * g**2
        first, second = self.first / (1 - b1**self.steps), self.second / (1 - b2**self.steps)
        return -eta * first / (np.sqrt(second) + self.epsilon)
