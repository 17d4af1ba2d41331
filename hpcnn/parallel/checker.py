"""Matches the programs of all ranks before the first message: what would hang or compute another sum is refused.

Each rank's program is held to its own rules (rules.py), then the ends of every message and collective to each other,
and at last all programs are played together (timeline.py): what then stands still waits in a circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from hpcnn.errors import ProgramError
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.program import OF_REPLICAS, RECEIVING, SENDING, Kind, Operation, Program
from hpcnn.parallel.rules import Extent, Fault, rank_faults
from hpcnn.parallel.table import timeline_table
from hpcnn.parallel.timeline import Channel, Timeline, channel_of, members_of, play

SizeOf = Callable[[int, Operation], int]
"""Bytes that a rank expects an operation to move; 0 for a message of a micro-batch without rows."""

_End = tuple[int, Operation]
"""The place of a message's end in its rank's program, and what it is."""


def check_programs(programs: Sequence[Program], grid: Grid, size_of: SizeOf = lambda rank, operation: 1) -> None:
    """Raises ProgramError unless `programs` (one a rank of `grid`) come to an end and compute one whole step.

    Its first line names the first fault found, with rank, stage and operation; the schedule table, with the place
    marked, stands below.
    """
    if len(programs) != grid.size:
        raise ProgramError(f"{len(programs)} programs for the {grid.size} ranks of {grid}: give one a rank")
    extent = _extent(programs)
    alike = grid.pp * grid.tp
    own = (
        rank_faults(program, grid, rank, extent)
        for rank, program in enumerate(programs)
        if rank < alike or program != programs[rank % alike]
    )
    for fault in chain.from_iterable(own):
        raise _refusal(play(programs, grid), grid, fault)
    timeline = play(programs, grid, silent=lambda rank, operation: size_of(rank, operation) == 0)
    faults = (
        _message_faults(programs, grid, size_of), _collective_faults(programs, grid, size_of), _circles(timeline, grid),
    )  # fmt: skip
    for fault in chain.from_iterable(faults):
        raise _refusal(timeline, grid, fault)


def _refusal(timeline: Timeline, grid: Grid, fault: Fault) -> ProgramError:
    table = timeline_table(timeline, grid, mark=(fault.rank, fault.place))
    return ProgramError(f"{_where(timeline.programs, grid, fault)}: {fault.words}\n{table}")


def _extent(programs: Sequence[Program]) -> Extent:
    operations = list(chain.from_iterable(programs))
    segments = 1 + max((operation.segment for operation in operations), default=0)
    return Extent(segments, 1 + max((operation.micro_batch or 0 for operation in operations), default=0))


def _where(programs: Sequence[Program], grid: Grid, fault: Fault) -> str:
    replica, stage, _ = grid.place(fault.rank)
    program = programs[fault.rank]
    rank = f"the program of rank {fault.rank} (replica {replica}, stage {stage})"
    if fault.place == len(program):
        return f"{rank} is not complete"
    operation = program[fault.place]
    return f"{rank} is wrong at its operation {fault.place}, {operation} ({operation.kind.words})"


def _message_faults(programs: Sequence[Program], grid: Grid, size_of: SizeOf) -> Iterator[Fault]:
    """Ends without another, in another order, or of another size."""
    sends: dict[Channel, list[_End]] = {}
    receives: dict[Channel, list[_End]] = {}
    for rank, program in enumerate(programs):
        for place, operation in enumerate(program):
            if operation.kind in (*SENDING, *RECEIVING):
                ends = sends if operation.kind in SENDING else receives
                ends.setdefault(channel_of(grid, rank, operation), []).append((place, operation))
    for channel in sorted({*sends, *receives}):
        sent, received = sends.get(channel, []), receives.get(channel, [])
        yield from _alone(channel.sender, sent, channel.receiver, received)
        yield from _alone(channel.receiver, received, channel.sender, sent)
        for (_, send), (place, receive) in zip(sent, received, strict=False):
            sender, receiver = channel.sender, channel.receiver
            if send.other_end != receive:
                words = f"the message that comes there is {send} of rank {sender}: bring both ends into one order"
                yield Fault(receiver, place, words)
            elif (there := size_of(sender, send)) != (here := size_of(receiver, receive)):
                words = f"it expects {here:,} bytes and {send} of rank {sender} has {there:,}: give both ends one size"
                yield Fault(receiver, place, words)


def _alone(rank: int, ends: Sequence[_End], other_rank: int, other_ends: Sequence[_End]) -> Iterator[Fault]:
    """Ends at `rank` beyond those at `other_rank`."""
    left = Counter(operation.other_end for _, operation in other_ends)
    for place, operation in ends:
        left[operation] -= 1
        if left[operation] < 0:
            words = f"its other end, {operation.other_end} of rank {other_rank}, is not there: add it or leave both out"
            yield Fault(rank, place, words)


def _collective_faults(programs: Sequence[Program], grid: Grid, size_of: SizeOf) -> Iterator[Fault]:
    """Members of one communicator that do not enter the same collectives in the same order."""
    for kinds in (OF_REPLICAS, (Kind.SHARE,)):
        entered = [
            [(place, operation) for place, operation in enumerate(program) if operation.kind in kinds]
            for program in programs
        ]
        for rank, own in enumerate(entered):
            first = members_of(grid, rank, Operation(kinds[0], 0))[0]
            yield from _unlike(programs, first, entered[first], rank, own, size_of)


def _unlike(
    programs: Sequence[Program], first: int, theirs: Sequence[_End], rank: int, own: Sequence[_End], size_of: SizeOf
) -> Iterator[Fault]:
    """How `rank` enters other collectives than `first`, of the same communicator, does."""
    remedy = "let all members of a collective enter the same ones in one order"
    for (_, there), (place, here) in zip(theirs, own, strict=False):
        if there != here:
            yield Fault(rank, place, f"rank {first} enters {there} meanwhile: {remedy}")
        elif here.kind in OF_REPLICAS and (there_size := size_of(first, there)) != (size := size_of(rank, here)):
            words = f"it adds {size:,} bytes and {there} of rank {first} {there_size:,}: give them one size"
            yield Fault(rank, place, words)
    if len(own) > len(theirs):
        yield Fault(rank, own[len(theirs)][0], f"rank {first} does not enter it: {remedy}")
    elif len(own) < len(theirs):
        yield Fault(rank, len(programs[rank]), f"rank {first} enters {theirs[len(own)][1]}, this rank never: {remedy}")


def _circles(timeline: Timeline, grid: Grid) -> Iterator[Fault]:
    """Ranks that wait for each other. All else matches, so whoever waits waits for one that waits as well."""
    stuck = timeline.stuck
    if not stuck:
        return
    path = [min(stuck)]
    while (awaited := _awaited(timeline, grid, path[-1])) not in path:
        path.append(awaited)
    circle = path[path.index(awaited) :]
    steps = [f"rank {rank} waits in {timeline.programs[rank][stuck[rank]]} for rank" for rank in circle]
    words = " ".join(f"{step} {other}," for step, other in zip(steps, [*circle[1:], circle[0]], strict=True))
    yield Fault(circle[0], stuck[circle[0]], f"{words} for ever: one of them must send first")


def _awaited(timeline: Timeline, grid: Grid, rank: int) -> int:
    """The rank that a stuck rank waits for."""
    program, place = timeline.programs[rank], timeline.stuck[rank]
    operation = program[place]
    if operation.kind in RECEIVING:
        return channel_of(grid, rank, operation).sender
    kinds = (Kind.SHARE,) if operation.kind is Kind.SHARE else OF_REPLICAS
    if operation.kind is Kind.COMPLETE:
        place = program.index(Operation(Kind.POST, operation.segment))
    before = sum(one.kind in kinds for one in program[:place])
    return next(
        member
        for member in members_of(grid, rank, operation)
        if sum(one.kind in kinds for one in _reached(timeline, member)) <= before
    )


def _reached(timeline: Timeline, rank: int) -> Program:
    """What a rank has begun: an operation in which it waits is one of them."""
    return timeline.programs[rank][: len(timeline.spans[rank]) + 1]
