"""Programs of a pipeline's stages: a schedule's compute order, with the messages, reductions and updates it needs.

Two stages under 1f1b with two micro-batches, in one replica and in one of several:

    stage 0  F0.0 S0.0 F0.1 S0.1 G0.0 B0.0 G0.1 B0.1 U0 H0         with R0 before U0
    stage 1  A1.0 F1.0 L1.0 T1.0 A1.1 F1.1 L1.1 T1.1 U1 H0         with R1 before U1

Every schedule takes the micro-batches through a segment in the same order as through its neighbours, so that both ends
of a channel have their messages in the same order; the checker holds every program to that before it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpcnn.parallel.program import COMPUTING, Kind, Operation, Program, stage_of
from hpcnn.parallel.schedules import compute_order

BACK_TO_INPUT = (Kind.BACKWARD, Kind.LOSS, Kind.BACKWARD_INPUT, Kind.LOSS_INPUT)
CLOSING = (Kind.BACKWARD, Kind.LOSS, Kind.BACKWARD_WEIGHTS)
"""What a forward's slot is closed by: nothing of the micro-batch is left to compute in the segment."""


def pipeline_programs(schedule: str, stages: int, micro_batches: int, chunks: int = 1, dp: int = 1) -> list[Program]:
    """Each stage's program for one step, for `dp` replicas. Raises as `schedules.check_schedule` does."""
    return [stage_program(schedule, stage, stages, micro_batches, chunks, dp) for stage in range(stages)]


def stage_program(schedule: str, stage: int, stages: int, micro_batches: int, chunks: int = 1, dp: int = 1) -> Program:
    """The program of one stage; all its replicas have the same."""
    order = compute_order(schedule, stage, stages, micro_batches, chunks)
    own = [segment for segment in range(stages * chunks) if stage_of(segment, stages) == stage]
    operations = list(with_messages(order, stages * chunks))
    if dp > 1:
        operations = with_reductions(operations)
    operations += [Operation(Kind.UPDATE, segment) for segment in own]
    if stages > 1:
        operations.append(Operation(Kind.SHARE, 0))
    return tuple(operations)


def with_messages(compute: Iterable[Operation], segments: int) -> Iterator[Operation]:
    """Receive right before the operation that needs it, send right after the one that makes it.

    Neighbouring segments of the `segments` are on different stages; one segment alone exchanges nothing.
    """
    for operation in compute:
        segment, micro_batch = operation.segment, operation.micro_batch
        forward, back = operation.kind is Kind.FORWARD, operation.kind in BACK_TO_INPUT
        if forward and segment > 0:
            yield Operation(Kind.ACCEPT, segment, micro_batch)
        if back and segment < segments - 1:
            yield Operation(Kind.GET, segment, micro_batch)
        yield operation
        if forward and segment < segments - 1:
            yield Operation(Kind.SEND, segment, micro_batch)
        if back and segment > 0:
            yield Operation(Kind.TRANSMIT, segment, micro_batch)


def with_reductions(operations: list[Operation]) -> list[Operation]:
    """Add each segment's gradient over replicas as soon as it is complete: after its last backward and its message.

    While something is left to compute the reduction is posted, and completed at the end; else it is a blocking one.
    """
    last = {operation.segment: operation for operation in operations if operation.kind in CLOSING}
    computing = sum(operation.kind in COMPUTING for operation in operations)
    result: list[Operation] = []
    complete, due = [], None
    for operation in operations:
        if due is not None and operation.kind is not Kind.TRANSMIT:
            result.append(due)
            due = None
        result.append(operation)
        computing -= operation.kind in COMPUTING
        if operation == last.get(operation.segment):
            due = Operation(Kind.POST if computing else Kind.REDUCE, operation.segment)
            complete += [Operation(Kind.COMPLETE, operation.segment)] if computing else []
    return [*result, *([due] if due else []), *complete]


def peak_slots(program: Program, segment: int | None = None) -> int:
    """The largest number of forwards that wait for their backward (with a split one: for its W) at the same time.

    Of one segment, or of all that the rank holds together.
    """
    now = peak = 0
    for operation in program:
        if segment in (None, operation.segment):
            now += (operation.kind is Kind.FORWARD) - (operation.kind in CLOSING)
            peak = max(peak, now)
    return peak
