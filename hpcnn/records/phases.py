"""Where a rank's time went: exclusive phases that sum to its wall time, because the clock is always in exactly one.

A collective is timed whole. Which part of it was waiting for late ranks is known only when all arrivals are, so it is
split afterwards (`resolve_waits`), on aligned clocks and without an added barrier. Of one that was posted earlier, to
compute meanwhile, what counts of the others is when they posted it.

gradient is forward and backward together, of a backend that computes both in one call: nobody could say which is which.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpcnn.records.arrivals import Arrivals
from hpcnn.records.clocks import ClockReadings

PHASES = (
    "start", "load", "forward", "backward", "gradient", "communicate", "wait", "update", "evaluate", "checkpoint",
    "other",
)  # fmt: skip
MEANWHILE = "meanwhile"
"""In a trace, the row beside the phases of what a thread did while the rank was in one of them."""
_COMPUTING = ("forward", "backward", "gradient")


def columns_for(spent: Collection[str]) -> list[str]:
    """Of a table for people: all phases, but of those that compute only the ones in which time was spent."""
    computing = [phase for phase in _COMPUTING if phase in spent] if "gradient" in spent else _COMPUTING[:2]
    return [phase for phase in PHASES if phase in computing or phase not in _COMPUTING]


def process_start() -> float:
    """When this process began, in seconds of `time.monotonic()` (kernel's figure, to 10 ms), so that imports count."""
    with open("/proc/self/stat", encoding="utf-8") as stream:
        ticks = int(stream.read().rpartition(")")[2].split()[19])
    with open("/proc/uptime", encoding="utf-8") as stream:
        uptime = float(stream.read().split()[0])
    age = uptime - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - max(age, 0.0)


@dataclass
class Tally:
    """Intervals of one phase in one epoch: how many, seconds in all, shortest, longest, bytes moved, seconds hidden."""

    count: int = 0
    seconds: float = 0.0
    minimum: float = float("inf")
    maximum: float = 0.0
    bytes: int = 0
    hidden_seconds: float = 0.0

    def add(self, seconds: float, size: int = 0) -> None:
        self.count += 1
        self.seconds += seconds
        self.minimum = min(self.minimum, seconds)
        self.maximum = max(self.maximum, seconds)
        self.bytes += size


class Event(NamedTuple):
    """A phase from `since` to `until`, in seconds of this host's monotonic clock; for a trace.

    `operation` is the text of the program's operation that it is part of, "" outside of programs.
    """

    phase: str
    since: float
    until: float
    operation: str = ""
    step: int = 0


class _Collective(NamedTuple):
    """`posted` is when this rank's part was on its way, `arrived` when it began to wait for the others', `ended` when
    all was done, where that is known. `step`: -1 of one that is no operation of a program, whose text is ""."""

    posted: float
    arrived: float
    finished: float
    size: int
    event: int
    step: int
    operation: str
    ended: float | None


@dataclass
class Block:
    """What is told of a collective from inside. `ended`: when all was done, if that was before the block's end, in
    seconds of this host's monotonic clock."""

    ended: float | None = None


class PhaseClock:
    """The clock of one rank. `switch` ends the phase that is running and starts another; epoch 0 is outside epochs.

    `step` is the training step that operations belong to.
    """

    def __init__(self, *, begin: float | None = None, trace: bool = False) -> None:
        self.begin = process_start() if begin is None else begin
        self.phase = "start"
        self.epoch = 0
        self.step = 0
        self.tallies: dict[tuple[int, str], Tally] = {}
        self.events: list[Event] | None = [] if trace else None
        self.meanwhile: list[Event] = []
        """Of a trace: when posted collectives moved data while this rank did something else."""
        self.arrivals = Arrivals()
        self._since = self.begin
        self._operation = ""
        self._collectives: dict[str, list[_Collective]] = defaultdict(list)
        self._waited: dict[int, float] = {}

    def switch(self, phase: str) -> float:
        """Enter `phase`; returns now, in seconds of this host's monotonic clock. Ends an operation."""
        return self._enter(phase, "")

    def operation(self, text: str, phase: str) -> float:
        """Enter `phase` as the operation `text` (F0.2) begins; it lasts to the next `switch` or `operation`.

        Of several calls in a row with the same text, one operation in several phases is made. Blocks (`during`,
        `collective`) inside are part of it.
        """
        return self._enter(phase, text)

    def _enter(self, phase: str, operation: str) -> float:
        now = time.monotonic()
        self._close(now)
        self.phase, self._since, self._operation = phase, now, operation
        return now

    def _close(self, now: float) -> None:
        if self.phase != "collective":
            self._tally(self.phase).add(now - self._since)
        if self.events is not None:
            self.events.append(Event(self.phase, self._since, now, self._operation, self.step))

    def _tally(self, phase: str) -> Tally:
        key = (self.epoch, phase)
        tally = self.tallies.get(key)
        if tally is None:
            tally = self.tallies[key] = Tally()
        return tally

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Be in `phase` for a block, then back in the phase before it."""
        before, operation = self.phase, self._operation
        self._enter(phase, operation)
        try:
            yield
        finally:
            self._enter(before, operation)

    @contextmanager
    def collective(
        self, size: int = 0, members: str = "all", posted: float | None = None, operation: str | None = None
    ) -> Iterator[Block]:
        """A block of `size` bytes that ranks enter in the same order and that ends when the last of them is there.

        `members` names which ranks those are: the same name on each of them, no other group's. `posted`: when this rank
        posted what the block completes, as a time of `switch` or `operation`; by default it begins with the block.
        `operation`: the text of the one that the block is, after which `other` runs; by default the block is part of
        the one that runs, which then goes on.
        """
        before, outer = (self.phase, self._operation) if operation is None else ("other", "")
        arrived = self._enter("collective", outer if operation is None else operation)
        block = Block()
        yield block
        finished = self._enter(before, outer)
        event = -1 if self.events is None else len(self.events) - 1
        posted = arrived if posted is None else posted
        step = -1 if operation is None else self.step
        self._collectives[members].append(
            _Collective(posted, arrived, finished, size, event, step, operation or "", block.ended)
        )

    def set_epoch(self, epoch: int) -> None:
        """What follows belongs to `epoch` (from 1; 0 is outside epochs). Waits must have been resolved."""
        self._enter(self.phase, self._operation)
        self.epoch = epoch

    def resolve_waits(self, comm: Any, clocks: ClockReadings | None = None) -> None:
        """Split the collectives since the last call into wait and communicate. Itself a collective, counted as other.

        `clocks` take this host's times to rank 0's. wait ends when the last member has arrived (or posted); what is
        left moved data. Clamped to the collective's own time, since offsets have an error. Of a posted one,
        hidden_seconds are those from the last member's posting to its end, as far as that was before this rank's
        arrival; where the end is not known, to that: an upper bound of the time that data moved meanwhile.
        """
        with self.during("other"):
            import numpy as np

            mine, self._collectives = self._collectives, defaultdict(list)
            posted = {}
            for members, entries in mine.items():
                times = np.array([entry.posted for entry in entries], dtype=np.float64)
                posted[members] = times if clocks is None else times + clocks.offset_at(times)
            of_all = [] if comm is None or comm.size == 1 else comm.allgather(posted)
            for members, entries in mine.items():
                own = posted[members]
                others = [
                    theirs[members] for rank, theirs in enumerate(of_all) if rank != comm.rank and members in theirs
                ]
                late = np.max([own, *others], axis=0) - own
                for entry, seconds in zip(entries, late.tolist(), strict=True):
                    self._split(entry, entry.posted + seconds)
                if members == self.arrivals.group:
                    self.arrivals.add(own, others, [entry.step for entry in entries])

    def _split(self, entry: _Collective, last: float) -> None:
        """`last`: when the last member posted, on this host's clock."""
        took = entry.finished - entry.arrived
        waited = min(max(last - entry.arrived, 0.0), took)
        self._tally("wait").add(waited)
        tally = self._tally("communicate")
        tally.add(took - waited, entry.size)
        until = entry.arrived if entry.ended is None else min(entry.ended, entry.arrived)
        tally.hidden_seconds += min(max(until - last, 0.0), until - entry.posted)
        if self.events is not None and entry.ended is not None and entry.posted < entry.arrived:
            since = min(max(last, entry.posted), entry.ended)
            self.meanwhile.append(Event(MEANWHILE, since, entry.ended, entry.operation, entry.step))
        if entry.event >= 0:
            self._waited[entry.event] = waited

    def traced(self) -> list[Event]:
        """The events up to now, collectives as wait and communicate; without gaps. Empty where none are kept."""
        found = []
        for place, event in enumerate(self.events or ()):
            if event.phase != "collective":
                found.append(event)
                continue
            arrived = event.since + self._waited.get(place, 0.0)
            if arrived > event.since:
                found.append(event._replace(phase="wait", until=arrived))
            found.append(event._replace(phase="communicate", since=arrived))
        return found

    def rows(self) -> list[tuple[int, str, Tally]]:
        """(epoch, phase, tally) up to now, epochs ascending, phases in their usual order."""
        self._enter(self.phase, self._operation)
        order = {phase: place for place, phase in enumerate(PHASES)}
        keys = sorted(self.tallies, key=lambda key: (key[0], order[key[1]]))
        return [(epoch, phase, self.tallies[epoch, phase]) for epoch, phase in keys]

    def wall_seconds(self) -> float:
        """Seconds since the process began."""
        return time.monotonic() - self.begin
