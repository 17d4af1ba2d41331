"""Plays the programs of all ranks against each other on one clock: when each operation runs, and who waits for ever.

The rules are those of the executor: a send leaves at once and never blocks, a receive blocks until its message is
there, messages of one channel arrive in the order sent, a collective ends when its last member has come. No rank
chooses what it receives, so the outcome does not depend on which rank is looked at first (Kahn, 1974, The semantics of
a simple language for parallel programming), nor on how fast they are. Messages take no time; they only make ranks wait.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpcnn.parallel.grid import Grid
from hpcnn.parallel.program import COMPUTING, OF_REPLICAS, RECEIVING, SENDING, Kind, Operation, Program, stage_of

Cost = Callable[[int, Operation], float]
"""Time that a rank takes for an operation."""

UNITS = {
    Kind.FORWARD: 1, Kind.LOSS: 2, Kind.BACKWARD: 2,
    Kind.BACKWARD_INPUT: 1, Kind.LOSS_INPUT: 1, Kind.BACKWARD_WEIGHTS: 1,
}  # fmt: skip
"""The literature's: a backward takes as long as two forwards, each half of it as long as one."""


def unit_cost(rank: int, operation: Operation) -> float:
    """`UNITS`, whatever the rank; what computes nothing takes no time."""
    return UNITS.get(operation.kind, 0)


class Channel(NamedTuple):
    """Where messages keep their order: from rank to rank, for one segment's input or output gradient."""

    sender: int
    receiver: int
    kind: Kind
    """Of the receiving end."""
    segment: int
    """Of the receiving end."""


def channel_of(grid: Grid, rank: int, operation: Operation) -> Channel:
    """The channel of a message's end on `rank`. ValueError for what is no message."""
    sends = operation.kind in SENDING
    receive = operation.other_end if sends else operation
    step = stage_of(operation.other_end.segment, grid.pp) - stage_of(operation.segment, grid.pp)
    other = rank + step * grid.tp
    return Channel(rank, other, *_key(receive)) if sends else Channel(other, rank, *_key(receive))


def _key(receive: Operation) -> tuple[Kind, int]:
    return receive.kind, receive.segment


def members_of(grid: Grid, rank: int, operation: Operation) -> tuple[int, ...]:
    """The ranks of a collective: the replicas of a stage, or the stages of a replica. ValueError for no collective."""
    replica, stage, part = grid.place(rank)
    if operation.kind is Kind.SHARE:
        return tuple((replica * grid.pp + other) * grid.tp + part for other in range(grid.pp))
    if operation.kind in (*OF_REPLICAS, Kind.COMPLETE):
        return tuple((other * grid.pp + stage) * grid.tp + part for other in range(grid.dp))
    raise ValueError(f"{operation} is no collective")


@dataclass(frozen=True)
class Timeline:
    """`spans[rank][i]`: when operation i of the rank begins (after any wait) and ends; those it never ends are missing.

    `ends[rank]`: when its last one ended, and it was through or began to wait for ever.
    """

    programs: tuple[Program, ...]
    spans: tuple[tuple[tuple[float, float], ...], ...]
    ends: tuple[float, ...]

    @property
    def stuck(self) -> dict[int, int]:
        """Ranks that wait for ever, and the place in their program of what they wait in."""
        pairs = zip(self.programs, self.spans, strict=True)
        return {rank: len(spans) for rank, (program, spans) in enumerate(pairs) if len(spans) < len(program)}

    @property
    def makespan(self) -> float:
        return max(self.ends, default=0.0)

    def busy(self, rank: int) -> float:
        """Time in which the rank computes."""
        pairs = zip(self.programs[rank], self.spans[rank], strict=False)
        return sum(end - begin for operation, (begin, end) in pairs if operation.kind in COMPUTING)

    @property
    def bubble(self) -> float:
        """Share of the ranks' time, from the first operation of all to the last, in which they do not compute."""
        if not self.makespan:
            return 0.0
        return 1.0 - sum(map(self.busy, range(len(self.programs)))) / (self.makespan * len(self.programs))


def play(
    programs: Sequence[Program],
    grid: Grid,
    cost: Cost = unit_cost,
    silent: Callable[[int, Operation], bool] = lambda rank, operation: False,
) -> Timeline:
    """`programs[rank]` on `grid`; messages that are `silent` are not exchanged (micro-batches without rows)."""
    ranks = [_Rank(grid, rank, tuple(program)) for rank, program in enumerate(programs)]
    world = _World(grid, cost, silent)
    while any([world.advance(rank) for rank in ranks]):
        pass
    return Timeline(
        tuple(rank.program for rank in ranks),
        tuple(tuple(rank.spans) for rank in ranks),
        tuple(rank.now for rank in ranks),
    )


class _Meeting(NamedTuple):
    """One collective: its communicator (of a stage's replicas, or of a replica's stages), and its place there."""

    shares: bool
    members: tuple[int, ...]
    number: int


class _Rank:
    def __init__(self, grid: Grid, number: int, program: Program) -> None:
        self.number = number
        self.program = program
        self.spans: list[tuple[float, float]] = []
        self.now = 0.0
        self.entered: Counter[bool] = Counter()
        """How many collectives it has entered, those of stages and the others."""
        self.posted: dict[int, _Meeting] = {}
        """Reductions under way, by segment."""


class _World:
    """What is between ranks: messages on their way, and who has come to which collective."""

    def __init__(self, grid: Grid, cost: Cost, silent: Callable[[int, Operation], bool]) -> None:
        self._grid, self._cost, self._silent = grid, cost, silent
        self._messages: dict[Channel, deque[float]] = {}
        self._came: dict[_Meeting, dict[int, float]] = {}

    def advance(self, rank: _Rank) -> bool:
        """Take `rank` as far as it gets; whether it got anywhere."""
        before = len(rank.spans)
        while len(rank.spans) < len(rank.program):
            operation = rank.program[len(rank.spans)]
            begin = self._begin(rank, operation)
            if begin is None:
                break
            rank.now = begin + self._cost(rank.number, operation)
            rank.spans.append((begin, rank.now))
        return len(rank.spans) > before

    def _begin(self, rank: _Rank, operation: Operation) -> float | None:
        """When it can begin, None while it cannot."""
        kind = operation.kind
        if kind in SENDING or kind in RECEIVING:
            if self._silent(rank.number, operation):
                return rank.now
            queue = self._messages.setdefault(channel_of(self._grid, rank.number, operation), deque())
            if kind in SENDING:
                queue.append(rank.now)
                return rank.now
            return max(rank.now, queue.popleft()) if queue else None
        if kind in OF_REPLICAS or kind is Kind.SHARE:
            return self._enter(rank, operation)
        if kind is Kind.COMPLETE:
            if operation.segment not in rank.posted or (end := self._all_came(rank.posted[operation.segment])) is None:
                return None
            del rank.posted[operation.segment]
            return max(rank.now, end)
        return rank.now

    def _enter(self, rank: _Rank, operation: Operation) -> float | None:
        shares = operation.kind is Kind.SHARE
        meeting = _Meeting(shares, members_of(self._grid, rank.number, operation), rank.entered[shares])
        self._came.setdefault(meeting, {})[rank.number] = rank.now
        end: float | None = rank.now
        if operation.kind is Kind.POST:
            rank.posted[operation.segment] = meeting
        else:
            end = self._all_came(meeting)
        if end is not None:
            rank.entered[shares] += 1
        return end

    def _all_came(self, meeting: _Meeting) -> float | None:
        came = self._came[meeting]
        return max(came.values()) if len(came) == len(meeting.members) else None
