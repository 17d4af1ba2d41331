"""What adds gradients across the ranks that hold the same segment.

A message is a segment's gradient and behind it the step's statistics, flat float32 (hpcnn.parallel.parts.FlatVectors).
It is added, never averaged: rule 1 has divided it already. All replicas make the same calls in the same order, whether
or not they have rows in a step.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.dataset import aligned_empty

Message = NDArray[np.float32]
STATISTICS = 2
"""Numbers that travel behind the gradient in one message: sum of row losses, rows classified rightly."""


def half_bytes(message: Message) -> int:
    """Of a message whose gradient takes 16 bits a number, and whose statistics travel as they are."""
    return message.nbytes - (len(message) - STATISTICS) * 2


class Reducer(abc.ABC):
    """Adds over `comm`, the replicas of this rank's stage. Construction is collective over `world`, all ranks.

    Raises BackendError or LaunchError, alike on all ranks or not, where what was asked for cannot run."""

    name: ClassVar[str]

    def __init__(self, comm: Any, options: Any, *, world: Any, backend: str) -> None:
        """`options`: of hpcnn.reducer_options. `backend`: what computes, as hpcnn.backend_options.backend_label."""
        self.comm, self.options, self.world, self.backend = comm, options, world, backend

    def allocate(self, size: int) -> Message:
        """Memory for a message of `size` numbers. Collective over the replicas; only such messages are reduced."""
        return aligned_empty((size,))

    def lend(self, segment: int, gradient: Any) -> None:  # noqa: B027 (most add what the host has)
        """A segment's gradient on its device, a KeptGradient of hpcnn.wrappers.contract, or None without one."""

    def show(self) -> None:  # noqa: B027 (most do in any case)
        """The messages of the step that comes are to hold what this rank brings, before they are added."""

    def begin(self, rows: int, global_rows: int) -> None:  # noqa: B027 (sums need not know)
        """A step begins, in which this rank has `rows` of `global_rows`."""

    @abc.abstractmethod
    def reduce(self, segment: int, message: Message) -> None:
        """Add, in place; returns when it is done."""

    @abc.abstractmethod
    def post(self, segment: int, message: Message) -> None:
        """Begin to add, in place; nobody touches the message until `complete`."""

    @abc.abstractmethod
    def complete(self, segment: int) -> float | None:
        """Wait until what was posted for `segment` is done. When that was, in seconds of this host's monotonic clock,
        where it is known."""

    def wire_bytes(self, message: Message) -> int:
        """Of the message as ranks exchange it: about half of its own where each number takes 16 bits on the way."""
        return message.nbytes

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Settings that results or speed may depend on, for run.json."""

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """What it holds is given back. Collective."""
