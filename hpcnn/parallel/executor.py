"""Carries out a rank's program: one training step, through MPI, timed phase by phase.

Gradients are added: over micro-batches by the wrapper, over ranks by Allreduce. The division by the global batch is in
the loss head alone. A rank (or micro-batch) without rows contributes zeros and computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.dataset import aligned_empty
from hpcnn.errors import ConfigError
from hpcnn.network.architecture import Segment
from hpcnn.parallel.optimizers import Optimizer, gradient_norm
from hpcnn.parallel.program import Kind, Operation, Program
from hpcnn.records.phases import PhaseClock
from hpcnn.wrappers.contract import Array, SegmentModel

STATISTICS = 2
"""Numbers that travel behind the gradient in one message: sum of row losses, rows classified rightly."""


class FlatVectors:
    """Weights and gradient of a segment, aligned; `message` is the gradient and the step's statistics behind it."""

    def __init__(self, segment: Segment) -> None:
        self.weights: Array = aligned_empty((segment.size,))
        self.message: Array = aligned_empty((segment.size + STATISTICS,))
        self.gradient: Array = self.message[: segment.size]
        self.statistics: Array = self.message[segment.size :]


@dataclass(frozen=True)
class LocalBatch:
    """A rank's rows of one global batch of `global_rows` rows."""

    x: Array
    labels: NDArray[np.int64]
    masks: Sequence[Array]
    global_rows: int

    def piece(self, micro_batch: int, micro_batches: int) -> LocalBatch:
        """Micro-batch `micro_batch` of `micro_batches`: consecutive rows, equal up to one, maybe none."""
        rows = len(self.labels)
        place = slice(rows * micro_batch // micro_batches, rows * (micro_batch + 1) // micro_batches)
        return LocalBatch(self.x[place], self.labels[place], [mask[place] for mask in self.masks], self.global_rows)


Divisor = Callable[[LocalBatch], float]


def global_rows(batch: LocalBatch) -> float:
    """What the loss head divides by: rows of the whole global batch, whatever this rank holds of it."""
    return float(batch.global_rows)


@dataclass(frozen=True)
class StepResult:
    """Means over the global batch, equal on all ranks. `gradient_norm` is measured where it was asked for, else nan."""

    loss: float
    accuracy: float
    gradient_norm: float


class Executor:
    """One rank's program over its one segment. `divisor` is `global_rows`, but for injected faults.

    Raises ConfigError where the program has an operation that no method here carries out.
    """

    def __init__(
        self,
        program: Program,
        model: SegmentModel,
        vectors: FlatVectors,
        optimizer: Optimizer,
        clock: PhaseClock,
        comm: Any,
        *,
        divisor: Divisor = global_rows,
        measure_norm: bool = True,
    ) -> None:
        self._program = program
        self._model = model
        self._vectors = vectors
        self._optimizer = optimizer
        self._clock = clock
        self._comm = comm
        self._divisor = divisor
        self._measure_norm = measure_norm
        self._micro_batches = 1 + max(op.micro_batch or 0 for op in program)
        self._loss_sum = 0.0
        self._correct = 0
        self._norm = float("nan")
        self._handlers = {
            Kind.FORWARD: self._forward, Kind.LOSS: self._loss, Kind.REDUCE: self._reduce, Kind.UPDATE: self._update,
        }  # fmt: skip
        _refuse_what_none_carries_out(program, self._handlers)

    def step(self, batch: LocalBatch, rate: float) -> StepResult:
        """One update from `batch` at learning rate `rate`."""
        self._loss_sum, self._correct, self._norm = 0.0, 0, float("nan")
        self._vectors.message.fill(0.0)
        for operation in self._program:
            self._handlers[operation.kind](operation, batch, rate)
        self._clock.switch("other")
        statistics = self._vectors.statistics
        return StepResult(
            float(statistics[0]) / batch.global_rows, float(statistics[1]) / batch.global_rows, self._norm
        )

    def _forward(self, operation: Operation, batch: LocalBatch, rate: float) -> None:
        piece = self._piece(operation, batch)
        if len(piece.labels):
            self._clock.switch("forward")
            self._model.forward(self._slot(operation), piece.x, piece.masks)

    def _loss(self, operation: Operation, batch: LocalBatch, rate: float) -> None:
        piece = self._piece(operation, batch)
        if len(piece.labels):
            self._clock.switch("backward")
            result = self._model.loss_backward(self._slot(operation), piece.labels, self._divisor(batch))
            self._loss_sum += result.loss_sum
            self._correct += result.correct
        self._vectors.statistics[:] = (self._loss_sum, self._correct)

    def _reduce(self, operation: Operation, batch: LocalBatch, rate: float) -> None:
        from mpi4py import MPI

        message = self._vectors.message
        with self._clock.collective(message.nbytes):
            self._comm.Allreduce(MPI.IN_PLACE, message, op=MPI.SUM)

    def _update(self, operation: Operation, batch: LocalBatch, rate: float) -> None:
        self._clock.switch("update")
        if self._measure_norm:
            self._norm = gradient_norm(self._vectors.gradient)
        self._optimizer.update(self._vectors.weights, self._vectors.gradient, rate)

    def _piece(self, operation: Operation, batch: LocalBatch) -> LocalBatch:
        return batch.piece(self._slot(operation), self._micro_batches)

    @staticmethod
    def _slot(operation: Operation) -> int:
        if operation.micro_batch is None:
            raise ValueError(f"{operation} has no micro-batch")
        return operation.micro_batch


def _refuse_what_none_carries_out(program: Program, kinds: Iterable[Kind]) -> None:
    known = {kind: kind.name.lower() for kind in kinds}
    for operation in program:
        if operation.kind not in known:
            raise ConfigError(
                f"the program's {operation} is a {operation.kind.name.lower()}, but a rank carries out "
                f"{', '.join(known.values())}: use another --strategy"
            )
