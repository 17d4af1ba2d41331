"""Where a rank's time went: exclusive phases that sum to its wall time, because the clock is always in exactly one.

A collective is timed whole. Which part of it was waiting for late ranks is known only when all arrivals are, so it is
split afterwards (`resolve_waits`), on aligned clocks and without an added barrier.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PHASES = (
    "start", "load", "forward", "backward", "communicate", "wait", "update", "evaluate", "checkpoint", "other",
)  # fmt: skip


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


class PhaseClock:
    """The clock of one rank. `switch` ends the phase that is running and starts another; epoch 0 is outside epochs."""

    def __init__(self, *, begin: float | None = None, trace: bool = False) -> None:
        self.begin = process_start() if begin is None else begin
        self.phase = "start"
        self.epoch = 0
        self.tallies: dict[tuple[int, str], Tally] = {}
        self.events: list[tuple[str, float, float]] | None = [] if trace else None
        self._since = self.begin
        self._collectives: list[tuple[float, float, int]] = []

    def switch(self, phase: str) -> float:
        """Enter `phase`; returns now, in seconds of this host's monotonic clock."""
        now = time.monotonic()
        self._close(now)
        self.phase, self._since = phase, now
        return now

    def _close(self, now: float) -> None:
        if self.phase != "collective":
            self._tally(self.phase).add(now - self._since)
        if self.events is not None:
            self.events.append((self.phase, self._since, now))

    def _tally(self, phase: str) -> Tally:
        key = (self.epoch, phase)
        tally = self.tallies.get(key)
        if tally is None:
            tally = self.tallies[key] = Tally()
        return tally

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Be in `phase` for a block, then back in the phase before it."""
        before = self.phase
        self.switch(phase)
        try:
            yield
        finally:
            self.switch(before)

    @contextmanager
    def collective(self, size: int = 0) -> Iterator[None]:
        """A block of `size` bytes that all ranks enter in the same order and that ends when the last one is there."""
        before = self.phase
        arrived = self.switch("collective")
        yield
        self._collectives.append((arrived, self.switch(before), size))

    def set_epoch(self, epoch: int) -> None:
        """What follows belongs to `epoch` (from 1; 0 is outside epochs). Waits must have been resolved."""
        self.switch(self.phase)
        self.epoch = epoch

    def resolve_waits(self, comm: Any, offset: float = 0.0) -> None:
        """Split the collectives since the last call into wait and communicate. Itself a collective, counted as other.

        `offset` (seconds) takes this host's clock to rank 0's. wait ends when the last rank has arrived; what is left
        moved data. Clamped to the collective's own time, since offsets have an error.
        """
        with self.during("other"):
            import numpy as np

            mine, self._collectives = self._collectives, []
            arrivals = np.array([arrived for arrived, _, _ in mine], dtype=np.float64) + offset
            latest = arrivals.copy()
            if comm is not None and comm.size > 1:
                latest = np.max(comm.allgather(arrivals), axis=0)
            for (arrived, finished, size), last in zip(mine, latest - offset, strict=True):
                took = finished - arrived
                waited = min(max(float(last) - arrived, 0.0), took)
                self._tally("wait").add(waited)
                self._tally("communicate").add(took - waited, size)

    def rows(self) -> list[tuple[int, str, Tally]]:
        """(epoch, phase, tally) up to now, epochs ascending, phases in their usual order."""
        self.switch(self.phase)
        order = {phase: place for place, phase in enumerate(PHASES)}
        keys = sorted(self.tallies, key=lambda key: (key[0], order[key[1]]))
        return [(epoch, phase, self.tallies[epoch, phase]) for epoch, phase in keys]

    def wall_seconds(self) -> float:
        """Seconds since the process began."""
        return time.monotonic() - self.begin
