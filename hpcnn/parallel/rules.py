"""What one rank's program must keep by itself: each operation once, in its place, after those that it needs.

    F0.1  needs nothing         F1.1  needs A1.1       B0.1  needs F0.1 and G0.1      W0.1  needs I0.1
    S0.1  needs F0.1            T1.1  needs B1.1       L2.1  needs F2.1               R0    needs all of B0
    U0    needs R0, or C0, where there are replicas, and all of B0                  H0    needs all updates
    N0    stands for F0, L0 and R0 together

Where one stage holds the whole network, a segment needs its neighbour's operation in place of the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hpcnn.parallel.grid import Grid
from hpcnn.parallel.pipeline import BACK_TO_INPUT
from hpcnn.parallel.program import OF_REPLICAS, Kind, Operation, Program, stage_of

_ONE_OF = (BACK_TO_INPUT, OF_REPLICAS)
_OF_LAST = (Kind.LOSS, Kind.LOSS_INPUT)
_TO_NEXT = (Kind.SEND, Kind.GET)
_TO_PREVIOUS = (Kind.ACCEPT, Kind.TRANSMIT)
_Alternatives = tuple[Operation, ...]


class Fault(NamedTuple):
    """What is wrong with the operation at `place` in the program of `rank`; after its last one, with its end."""

    rank: int
    place: int
    words: str


@dataclass(frozen=True)
class Extent:
    """What a step consists of: its segments, and its micro-batches."""

    segments: int
    micro_batches: int

    def is_last(self, segment: int) -> bool:
        return segment == self.segments - 1


def rank_faults(program: Program, grid: Grid, rank: int, extent: Extent) -> Iterator[Fault]:
    """Faults of one rank's program, in its order."""
    stage = grid.place(rank)[1]
    done: set[Operation] = set()
    for place, operation in enumerate(program):
        words = (
            _misplaced(operation, grid, stage, extent)
            or _repeated(operation, done)
            or _needed(needs(operation, grid, stage, extent), done, "before it")
        )
        if words:
            yield Fault(rank, place, words)
        done.add(operation)
    if words := _needed(_of_every_program(grid, stage, extent, done), done, "in this rank's program"):
        yield Fault(rank, len(program), words)


def needs(operation: Operation, grid: Grid, stage: int, extent: Extent) -> Iterator[_Alternatives]:
    """What must come before `operation` on its rank: one of each tuple."""
    kind, segment, m = operation.kind, operation.segment, operation.micro_batch
    pipelined = grid.pp > 1
    match kind:
        case Kind.FORWARD if segment > 0:
            yield (Operation(Kind.ACCEPT, segment, m) if pipelined else Operation(Kind.FORWARD, segment - 1, m),)
        case Kind.SEND:
            yield (Operation(Kind.FORWARD, segment, m),)
        case Kind.LOSS | Kind.LOSS_INPUT | Kind.BACKWARD | Kind.BACKWARD_INPUT:
            yield (Operation(Kind.FORWARD, segment, m),)
            if not extent.is_last(segment):
                yield (Operation(Kind.GET, segment, m),) if pipelined else _backwards(segment + 1, m, extent)
        case Kind.BACKWARD_WEIGHTS:
            yield (_backwards(segment, m, extent)[1],)
        case Kind.TRANSMIT:
            yield _backwards(segment, m, extent)
        case Kind.REDUCE | Kind.POST:
            yield from _gradients(segment, extent)
        case Kind.COMPLETE:
            yield (Operation(Kind.POST, segment),)
        case Kind.UPDATE:
            yield from _gradients(segment, extent)
            yield from _reductions(segment, grid)
        case Kind.SHARE:  # the numbers that it hands on are those of the reduced gradients
            yield from ((Operation(Kind.UPDATE, own),) for own in range(stage, extent.segments, grid.pp))


def _backwards(segment: int, m: int | None, extent: Extent) -> _Alternatives:
    """The whole backward, and the one to the input alone."""
    whole, to_input = _OF_LAST if extent.is_last(segment) else (Kind.BACKWARD, Kind.BACKWARD_INPUT)
    return Operation(whole, segment, m), Operation(to_input, segment, m)


def _gradients(segment: int, extent: Extent) -> Iterator[_Alternatives]:
    """All that adds to the segment's gradient."""
    for m in range(extent.micro_batches):
        halves = Operation(Kind.BACKWARD_WEIGHTS, segment, m), Operation(Kind.NATIVE, segment)
        yield _backwards(segment, m, extent)[0], *halves


def _reductions(segment: int, grid: Grid) -> Iterator[_Alternatives]:
    if grid.dp > 1:
        yield Operation(Kind.REDUCE, segment), Operation(Kind.COMPLETE, segment), Operation(Kind.NATIVE, segment)


def _of_every_program(grid: Grid, stage: int, extent: Extent, done: set[Operation]) -> Iterator[_Alternatives]:
    """What a rank must have come to by the end of a step."""
    for segment in range(stage, extent.segments, grid.pp):
        if Operation(Kind.POST, segment) in done:
            yield (Operation(Kind.COMPLETE, segment),)
        yield (Operation(Kind.UPDATE, segment),)
    if grid.pp > 1:
        yield (Operation(Kind.SHARE, 0),)


def _needed(wanted: Iterator[_Alternatives], done: set[Operation], where: str) -> str:
    for alternatives in wanted:
        if done.isdisjoint(alternatives):
            usual = [str(one) for one in alternatives if one.kind is not Kind.NATIVE]
            return f"there must be {' or '.join(usual)} {where}"
    return ""


def _misplaced(operation: Operation, grid: Grid, stage: int, extent: Extent) -> str:
    kind, segment = operation.kind, operation.segment
    if kind is Kind.SHARE:
        return "" if grid.pp > 1 and segment == 0 else "stages share the loss as H0, and only where there are several"
    if stage_of(segment, grid.pp) != stage:
        return f"segment {segment} belongs to stage {stage_of(segment, grid.pp)}: leave it to that stage"
    if kind in (*_TO_NEXT, *_TO_PREVIOUS) and grid.pp == 1:
        return "a network of one stage has no messages: leave it out"
    if kind is Kind.NATIVE and extent.segments > 1:
        return "the framework's own parallelism takes a network whole, not cut: leave it out"
    if kind in _TO_PREVIOUS and segment == 0:
        return "no segment is before the first: leave it out"
    if kind in _TO_NEXT and extent.is_last(segment):
        return "no segment is after the last: leave it out"
    if kind in BACK_TO_INPUT and extent.is_last(segment) != (kind in _OF_LAST):
        right = " or ".join(map(str, _backwards(segment, operation.micro_batch, extent)))
        return f"the loss is the last segment's, which is {extent.segments - 1}: here must be {right}"
    return ""


def _repeated(operation: Operation, done: set[Operation]) -> str:
    kinds = next((kinds for kinds in _ONE_OF if operation.kind in kinds), (operation.kind,))
    for kind in kinds:
        if (former := Operation(kind, operation.segment, operation.micro_batch)) in done:
            return f"{former} was before it, and a step has only one of them: leave one out"
    return ""
