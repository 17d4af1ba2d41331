"""What a rank does for a segment once a step, behind its micro-batches: the sums over ranks, and the update."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np

from hpcnn.parallel.optimizers import gradient_norm
from hpcnn.parallel.parts import Links, Part
from hpcnn.parallel.program import Kind, Operation
from hpcnn.records.phases import PhaseClock

operation_text = functools.cache(Operation.__str__)


class Adding:
    """`parts`: the rank's segments by their numbers. `measure_norm`: whether a step's result has a gradient norm."""

    def __init__(self, parts: Mapping[int, Part], clock: PhaseClock, links: Links, *, measure_norm: bool) -> None:
        self._parts, self._clock, self._links = parts, clock, links
        self._measure_norm = measure_norm
        self._squares = 0.0
        self._rate = 0.0
        self._shared: tuple[float, float, float] | None = None
        self._posted: dict[int, float] = {}
        self.handlers: dict[Kind, Callable[[Operation], None]] = {
            Kind.REDUCE: self._reduce,
            Kind.POST: self._post,
            Kind.COMPLETE: self._complete,
            Kind.SHARE: self._share,
            Kind.UPDATE: self._update,
        }

    def begin(self, rate: float) -> None:
        """A step, at learning rate `rate`."""
        self._rate, self._shared = rate, None
        self._squares = 0.0 if self._measure_norm else math.nan

    def numbers(self) -> tuple[float, float, float]:
        """Of the step: sum of row losses and rows classified rightly (0 without the last segment, where stages have not
        shared them), and the gradients' squares."""
        return self._shared or self._own_numbers()

    def _reduce(self, operation: Operation) -> None:
        assert self._links.reducer is not None
        message = self._parts[operation.segment].vectors.message
        size = self._links.reducer.wire_bytes(message)
        with self._clock.collective(size, self._links.group, operation=operation_text(operation)):
            self._links.reducer.reduce(operation.segment, message)

    def _post(self, operation: Operation) -> None:
        assert self._links.reducer is not None
        self._posted[operation.segment] = self._clock.operation(operation_text(operation), "communicate")
        self._links.reducer.post(operation.segment, self._parts[operation.segment].vectors.message)

    def _complete(self, operation: Operation) -> None:
        assert self._links.reducer is not None
        posted = self._posted.pop(operation.segment)
        size = self._links.reducer.wire_bytes(self._parts[operation.segment].vectors.message)
        with self._clock.collective(size, self._links.group, posted, operation_text(operation)) as block:
            block.ended = self._links.reducer.complete(operation.segment)

    def add_statistics(self, operation: Operation, own: tuple[float, int]) -> None:
        """Of a step that a framework did within, gradient and all: its loss and correct rows, over the replicas."""
        from mpi4py import MPI

        statistics = self._parts[operation.segment].vectors.statistics
        statistics[:] = own
        with self._clock.collective(statistics.nbytes, self._links.group, operation=operation_text(operation)):
            self._links.replicas.Allreduce(MPI.IN_PLACE, statistics, op=MPI.SUM)

    def _share(self, operation: Operation) -> None:
        from mpi4py import MPI

        numbers = np.array(self._own_numbers(), np.float64)
        with self._clock.collective(numbers.nbytes, self._links.line, operation=operation_text(operation)):
            self._links.stages.Allreduce(MPI.IN_PLACE, numbers, op=MPI.SUM)
        loss, correct, squares = numbers.tolist()
        self._shared = loss, correct, squares

    def _own_numbers(self) -> tuple[float, float, float]:
        statistics = [part.vectors.statistics for part in self._parts.values()]
        return sum(float(one[0]) for one in statistics), sum(float(one[1]) for one in statistics), self._squares

    def _update(self, operation: Operation) -> None:
        self._clock.operation(operation_text(operation), "update")
        part = self._parts[operation.segment]
        if self._measure_norm:
            self._squares += gradient_norm(part.vectors.gradient) ** 2
        part.optimizer.update(part.vectors.weights, part.vectors.gradient, self._rate)
