"""Where torch's weights and gradient lie: in the caller's memory, or as copies on a GPU.

On a GPU the weights go there before each forward, and what a backward added comes back after it, through memory that
is pinned, so that the GPU moves it by itself. DistributedDataParallel, or an MPI that reads GPUs' memory, adds there
first, and a step's gradient comes back once (`held`; `keep` and `release`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from hpcnn.wrappers.contract import Array

Tensor = torch.Tensor


class Shared:
    """`weights` and `gradient` are the caller's vectors themselves: nothing is ever copied."""

    device = torch.device("cpu")

    def __init__(self, weights: Array, gradient: Array) -> None:
        self.weights, self.gradient = torch.from_numpy(weights), torch.from_numpy(gradient)

    def fetch(self) -> None:
        """Before a forward: the weights as the caller has them now."""

    def give(self) -> None:
        """After a backward: what it added is in the caller's gradient."""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is given meanwhile, all of it in the end."""
        yield


class Copied(Shared):
    """`weights` and `gradient` on `device`, the latter a KeptGradient."""

    def __init__(self, weights: Array, gradient: Array, device: torch.device) -> None:
        self.device = device
        self._caller = weights, gradient
        self._staged = [torch.empty(len(weights), pin_memory=device.type == "cuda") for _ in range(2)]
        self._arrays = [staged.numpy() for staged in self._staged]
        self.weights, self.gradient = (torch.zeros(len(weights), device=device) for _ in range(2))
        self._holding = False

    def keep(self) -> None:
        self.gradient.zero_()
        self._holding = True

    def buffer(self) -> Tensor:
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        return self.gradient

    def release(self) -> None:
        self._holding = False
        self.give()

    def fetch(self) -> None:
        # What was started before it has ended: whoever called for a forward or backward has its results in NumPy.
        np.copyto(self._arrays[0], self._caller[0])
        # Behind autograd's back, as an update of shared memory is: slots may be open, and are not to be told.
        self.weights.data.copy_(self._staged[0], non_blocking=True)

    def give(self) -> None:
        if self._holding:
            return
        self._staged[1].copy_(self.gradient)
        self.gradient.zero_()
        np.add(self._caller[1], self._arrays[1], out=self._caller[1])

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.keep()
        try:
            yield
        except BaseException:
            self._holding = False
            raise
        self.release()


def on_gpu(weights: Array, gradient: Array) -> Shared:
    """On the one GPU that this process sees."""
    return Copied(weights, gradient, torch.device("cuda", 0))
