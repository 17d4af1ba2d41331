"""Carries out a rank's program: one training step, through MPI, timed operation by operation.

Gradients are added: over micro-batches by the wrapper, over ranks by a reducer. The division by the global batch is in
the loss head alone. A rank (or micro-batch) without rows contributes zeros, exchanges no message and computes nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hpcnn.parallel.adding import Adding, operation_text
from hpcnn.parallel.inject import slowed
from hpcnn.parallel.parts import Divisor, Links, LocalBatch, Part, StepResult, global_rows
from hpcnn.parallel.pipeline import CLOSING
from hpcnn.parallel.program import COMPUTING, RECEIVING, Kind, Operation, Program
from hpcnn.records.phases import PhaseClock
from hpcnn.wrappers.contract import Array, LossResult
from hpcnn.wrappers.fused import FusedStep, Piece

Call = Callable[[Operation, LocalBatch], None]
_SPLIT = (Kind.BACKWARD_INPUT, Kind.LOSS_INPUT, Kind.BACKWARD_WEIGHTS)


class Executor:
    """One rank's program over its segments, `parts` by their numbers.

    `divisor`: `global_rows`, and `slow` 1, but for faults. `fused` carries out a program's N0, in so many
    `micro_batches`; other programs say themselves how many they have.

    Raises BackendError where a segment cannot split its backward and the program wants it to.
    """

    def __init__(
        self,
        program: Program,
        parts: Mapping[int, Part],
        clock: PhaseClock,
        links: Links,
        *,
        divisor: Divisor = global_rows,
        measure_norm: bool = True,
        slow: float = 1.0,
        fused: FusedStep | None = None,
        micro_batches: int = 1,
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._links = links
        self._divisor = divisor
        self._adding = Adding(parts, clock, links, measure_norm=measure_norm)
        self._fused_gradient = slowed(fused.gradient, slow) if fused else None
        self._micro_batches = micro_batches if fused else 1 + max(op.micro_batch or 0 for op in program)
        self._receives = [op for op in program if op.kind in RECEIVING]
        self._masks = dict(_mask_places(parts))
        self._loss_sum = 0.0
        self._correct = 0
        self._divide_by = 1.0
        self._pieces: dict[int, LocalBatch] = {}
        self._arrived: dict[Operation, Array] = {}
        self._made: dict[Operation, Array] = {}
        self.current: Operation | None = None
        """What is being carried out, for last words; None between steps."""
        handlers: dict[Kind, Call] = {
            Kind.FORWARD: self._forward, Kind.LOSS: self._loss, Kind.BACKWARD: self._backward,
            Kind.BACKWARD_INPUT: self._backward_input, Kind.LOSS_INPUT: self._loss_input,
            Kind.BACKWARD_WEIGHTS: self._backward_weights, Kind.ACCEPT: self._receive, Kind.GET: self._receive,
            Kind.SEND: self._send, Kind.TRANSMIT: self._send, Kind.NATIVE: self._native,
            **{kind: _whole(call) for kind, call in self._adding.handlers.items()},
        }  # fmt: skip
        for segment in {op.segment for op in program if op.kind in _SPLIT}:
            parts[segment].model.check_split()
        self._calls = [
            (slowed(call, slow) if operation.kind in COMPUTING and not fused else call, operation, piece)
            for call, operation, piece in self._bound(program, handlers)
        ]

    def step(self, batch: LocalBatch, rate: float) -> StepResult:
        """One update from `batch` at learning rate `rate`."""
        self._begin(batch, rate)
        for call, operation, micro_batch in self._calls:
            self.current = operation
            if micro_batch is None:
                call(operation, batch)
            elif len((piece := self._pieces[micro_batch]).labels):
                call(operation, piece)
        self._clock.switch("other")
        self.current = None
        if self._links.messages is not None:
            self._links.messages.finish()
        loss, correct, squares = self._adding.numbers()
        return StepResult(loss / batch.global_rows, correct / batch.global_rows, math.sqrt(squares))

    @property
    def doing(self) -> str:
        """For people: what is being carried out, or was when it failed; "" between steps."""
        operation = self.current
        if operation is None:
            return ""
        place = "" if operation.micro_batch is None else f", micro-batch {operation.micro_batch}"
        stage = "" if self._links.stages is None else f"stage {self._links.stages.rank}, "
        return f"{stage}{operation} ({operation.kind.words} of segment {operation.segment}{place})"

    def _begin(self, batch: LocalBatch, rate: float) -> None:
        self._loss_sum, self._correct = 0.0, 0
        self._adding.begin(rate)
        self._divide_by = self._divisor(batch)
        for part in self._parts.values():
            part.vectors.message.fill(0.0)
        self._pieces = {place: batch.piece(place, self._micro_batches) for place in range(self._micro_batches)}
        if self._links.messages is not None:
            self._links.messages.expect(self._expected())
        if self._links.reducer is not None:
            self._links.reducer.begin(len(batch.labels), batch.global_rows)

    def _expected(self) -> Iterator[tuple[Operation, tuple[int, ...]]]:
        for receive in self._receives:
            rows = len(self._pieces[_slot(receive)].labels)
            segment = self._parts[receive.segment].segment
            if rows:
                yield receive, (rows, *(segment.input_shape if receive.kind is Kind.ACCEPT else segment.output_shape))

    def _bound(self, program: Program, handlers: Mapping[Kind, Call]) -> Iterator[tuple[Call, Operation, int | None]]:
        """Operations with the methods that carry them out: a forward right before its loss with it, where that pays."""
        operations = iter(zip(program, (*program[1:], None), strict=True))
        for operation, following in operations:
            loss = _as(operation, Kind.LOSS)
            fuses = operation.kind is Kind.FORWARD and self._parts[operation.segment].model.capabilities.fuses_loss
            if fuses and following == loss:
                yield self._forward_and_loss, loss, loss.micro_batch
                next(operations)
            else:
                yield handlers[operation.kind], operation, operation.micro_batch

    def _forward(self, operation: Operation, piece: LocalBatch) -> None:
        part = self._parts[operation.segment]
        self._clock.operation(operation_text(operation), "forward")
        output = part.model.forward(_slot(operation), self._input(operation, piece), self._masks_of(operation, piece))
        if not part.segment.is_last:
            self._hand_on(_as(operation, Kind.SEND), output)

    def _loss(self, operation: Operation, piece: LocalBatch) -> None:
        self._clock.operation(operation_text(operation), "backward")
        model = self._parts[operation.segment].model
        self._lost(operation, model.loss_backward(_slot(operation), piece.labels, self._divide_by))

    def _forward_and_loss(self, operation: Operation, piece: LocalBatch) -> None:
        self._clock.operation(operation_text(operation), "gradient")
        model, x = self._parts[operation.segment].model, self._input(operation, piece)
        masks = self._masks_of(operation, piece)
        self._lost(operation, model.forward_loss_backward(x, masks, piece.labels, self._divide_by))

    def _loss_input(self, operation: Operation, piece: LocalBatch) -> None:
        self._clock.operation(operation_text(operation), "backward")
        model = self._parts[operation.segment].model
        self._lost(operation, model.loss_backward_input(_slot(operation), piece.labels, self._divide_by))

    def _lost(self, operation: Operation, result: LossResult) -> None:
        self._loss_sum += result.loss_sum
        self._correct += result.correct
        self._parts[operation.segment].vectors.statistics[:] = (self._loss_sum, self._correct)
        self._gone_back(operation, result.input_gradient)

    def _backward(self, operation: Operation, piece: LocalBatch) -> None:
        self._clock.operation(operation_text(operation), "backward")
        model = self._parts[operation.segment].model
        self._gone_back(operation, model.backward(_slot(operation), self._output_gradient(operation)))

    def _backward_input(self, operation: Operation, piece: LocalBatch) -> None:
        self._clock.operation(operation_text(operation), "backward")
        model = self._parts[operation.segment].model
        self._gone_back(operation, model.backward_input(_slot(operation), self._output_gradient(operation)))

    def _backward_weights(self, operation: Operation, piece: LocalBatch) -> None:
        self._clock.operation(operation_text(operation), "backward")
        self._parts[operation.segment].model.backward_weights(_slot(operation))
        self._closed(operation)

    def _gone_back(self, operation: Operation, input_gradient: Array | None) -> None:
        if not self._parts[operation.segment].segment.is_first and input_gradient is not None:
            self._hand_on(_as(operation, Kind.TRANSMIT), input_gradient)
        if operation.kind in CLOSING:
            self._closed(operation)

    def _hand_on(self, message: Operation, array: Array) -> None:
        """Kept until its operation, or at the segment that it is for, where this rank holds that one too."""
        there = _other_end(message)
        if there.segment in self._parts:
            self._arrived[there] = array
        else:
            self._made[message] = array

    def _closed(self, operation: Operation) -> None:
        """The slot is closed: what was received for it may be overwritten."""
        if self._links.messages is not None:
            for kind in RECEIVING:
                self._links.messages.release(_as(operation, kind))

    def _input(self, operation: Operation, piece: LocalBatch) -> Array:
        if self._parts[operation.segment].segment.is_first:
            return piece.x
        return self._arrived.pop(_as(operation, Kind.ACCEPT))

    def _output_gradient(self, operation: Operation) -> Array:
        return self._arrived.pop(_as(operation, Kind.GET))

    def _masks_of(self, operation: Operation, piece: LocalBatch) -> list[Array]:
        return list(piece.masks[self._masks[operation.segment]])

    def _receive(self, operation: Operation, piece: LocalBatch) -> None:
        assert self._links.messages is not None
        self._clock.operation(operation_text(operation), "wait")
        self._arrived[operation] = self._links.messages.receive(operation)

    def _send(self, operation: Operation, piece: LocalBatch) -> None:
        assert self._links.messages is not None
        self._clock.operation(operation_text(operation), "communicate")
        self._links.messages.send(operation, self._made.pop(operation))

    def _native(self, operation: Operation, batch: LocalBatch) -> None:
        assert self._fused_gradient is not None
        self._clock.operation(operation_text(operation), "gradient")
        pieces = [Piece(piece.x, piece.masks, piece.labels) for piece in self._pieces.values()]
        self._adding.add_statistics(operation, self._fused_gradient(pieces, self._divide_by))


def _whole(call: Callable[[Operation], None]) -> Call:
    """What is done for a segment once a step, whatever the rows."""
    return lambda operation, batch: call(operation)


_other_end = functools.cache(Operation.other_end.fget)  # type: ignore[attr-defined]


@functools.cache
def _as(operation: Operation, kind: Kind) -> Operation:
    """Another operation on the same segment and micro-batch."""
    return replace(operation, kind=kind)


def _slot(operation: Operation) -> int:
    if operation.micro_batch is None:
        raise ValueError(f"{operation} has no micro-batch")
    return operation.micro_batch


def _mask_places(parts: Mapping[int, Part]) -> Iterator[tuple[int, slice]]:
    """Where each segment's masks are among those of the rank."""
    start = 0
    for number, part in sorted(parts.items()):
        count = len(part.segment.dropouts)
        yield number, slice(start, start + count)
        start += count
