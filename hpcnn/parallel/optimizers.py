"""The update: one written formula per optimizer, elementwise on flat float32 vectors, its state in the same layout.

Frameworks differ in where they put epsilon and how they nest momentum; with one formula all agree. The formulas work
through the vectors in blocks that stay in a core's cache, which is as fast as a fused kernel and still plain NumPy.

    sgd     v = mu v - eta g;   w += v, or with Nesterov w += mu v - eta g
    adam    m = b1 m + (1 - b1) g;   v = b2 v + (1 - b2) g g;   w -= eta (m / c1) / (sqrt(v / c2) + 1e-8)
            with c1 = 1 - b1^t, c2 = 1 - b2^t, t the update's number from 1 (Kingma and Ba, 2015, algorithm 1)

Weight decay, coupled: g + d w takes the place of g. Decoupled: w -= eta d w besides (Loshchilov and Hutter, 2019).
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hpcnn.config import RunConfig
from hpcnn.errors import CheckpointError

Array = NDArray[np.float32]

BLOCK = 32768
"""Elements of a block: 128 KiB a vector, five vectors fit a second-level cache of 1 MiB."""

EPSILON = 1e-8


class Optimizer(abc.ABC):
    """State of `size` parameters. `state` holds canonical vectors by name, as a checkpoint keeps them."""

    names: tuple[str, ...]

    def __init__(self, size: int, *, weight_decay: float = 0.0, decoupled: bool = True) -> None:
        self.state: dict[str, Array] = {name: np.zeros(size, np.float32) for name in self.names}
        self.updates = 0
        self._weight_decay = weight_decay
        self._decoupled = decoupled
        self._scratch = np.empty((2, min(BLOCK, size)), np.float32)

    @np.errstate(over="ignore", invalid="ignore")
    def update(self, weights: Array, gradient: Array, rate: float) -> None:
        """Change `weights` in place by `gradient`; `gradient` stays as it is. An overflow shows in the next loss."""
        self.updates += 1
        for block in _blocks(weights.size):
            w, g = weights[block], gradient[block]
            scratch, decayed = self._scratch[0, : w.size], self._scratch[1, : w.size]
            if self._weight_decay and not self._decoupled:
                np.multiply(w, self._weight_decay, out=decayed)
                decayed += g
                g = decayed
            elif self._weight_decay:
                np.multiply(w, rate * self._weight_decay, out=scratch)
                w -= scratch
            self._update_block(block, w, g, rate, scratch)

    @abc.abstractmethod
    def _update_block(self, block: slice, w: Array, g: Array, rate: float, scratch: Array) -> None: ...

    def load(self, state: dict[str, Array], updates: int) -> None:
        """Take over a checkpoint's state. Raises CheckpointError where it is another optimizer's or another size."""
        if set(state) != set(self.names):
            raise CheckpointError(
                f"the checkpoint's optimizer state is {sorted(state) or 'empty'}, this run's is {sorted(self.names)}: "
                "resume with the optimizer that wrote it"
            )
        for name, vector in state.items():
            if vector.shape != self.state[name].shape:
                raise CheckpointError(
                    f"the checkpoint's {name} has {vector.size} numbers, this network {self.state[name].size}"
                )
            self.state[name][:] = vector
        self.updates = updates


class SGD(Optimizer):
    """Stochastic gradient descent with momentum `mu`, Nesterov's or plain."""

    def __init__(
        self,
        size: int,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        decoupled: bool = True,
    ) -> None:
        self.names = ("velocity",) if momentum else ()
        super().__init__(size, weight_decay=weight_decay, decoupled=decoupled)
        self._momentum, self._nesterov = momentum, nesterov

    def _update_block(self, block: slice, w: Array, g: Array, rate: float, scratch: Array) -> None:
        np.multiply(g, rate, out=scratch)
        if not self._momentum:
            w -= scratch
            return
        v = self.state["velocity"][block]
        v *= self._momentum
        v -= scratch
        if self._nesterov:
            w -= scratch
            np.multiply(v, self._momentum, out=scratch)
            w += scratch
        else:
            w += v


class Adam(Optimizer):
    """Adam with epsilon added after bias correction."""

    names = ("first_moment", "second_moment")

    def __init__(
        self, size: int, *, beta1: float = 0.9, beta2: float = 0.999, weight_decay: float = 0.0, decoupled: bool = True
    ) -> None:
        super().__init__(size, weight_decay=weight_decay, decoupled=decoupled)
        self._beta1, self._beta2 = beta1, beta2

    def _update_block(self, block: slice, w: Array, g: Array, rate: float, scratch: Array) -> None:
        m, v = self.state["first_moment"][block], self.state["second_moment"][block]
        correction1 = 1.0 - self._beta1**self.updates
        correction2 = 1.0 - self._beta2**self.updates
        m *= self._beta1
        np.multiply(g, 1.0 - self._beta1, out=scratch)
        m += scratch
        v *= self._beta2
        np.multiply(g, g, out=scratch)
        scratch *= 1.0 - self._beta2
        v += scratch
        np.multiply(v, 1.0 / correction2, out=scratch)
        np.sqrt(scratch, out=scratch)
        scratch += EPSILON
        np.divide(m, scratch, out=scratch)
        scratch *= rate / correction1
        w -= scratch


def _blocks(size: int) -> Iterator[slice]:
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))


def make_optimizer(config: RunConfig, size: int) -> Optimizer:
    """The optimizer that `config` asks for."""
    decoupled = config.weight_decay_kind == "decoupled"
    if config.optimizer == "adam":
        return Adam(size, beta1=config.beta1, beta2=config.beta2, weight_decay=config.weight_decay, decoupled=decoupled)
    return SGD(
        size, momentum=config.momentum, nesterov=config.nesterov, weight_decay=config.weight_decay, decoupled=decoupled
    )


def gradient_norm(gradient: Array) -> float:
    """Euclidean norm of a flat vector, its blocks' squares added in float64."""
    return math.sqrt(dot(gradient, gradient))


@np.errstate(over="ignore", invalid="ignore")
def dot(left: Array, right: Array) -> float:
    """Product of flat vectors, its blocks' products added in float64."""
    return sum(float(np.dot(left[block], right[block])) for block in _blocks(left.size))
