"""Carried out on real ranks by the tests of clocks and phases, with clocks that the tests wind."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hpcnn.records.clocks import ClockReadings
from hpcnn.records.phases import PhaseClock


@dataclass(frozen=True)
class Found:
    """How far the offset half-way between two readings, and the drift, are from the truth; seconds."""

    readings: int
    wrong_by: float
    error: float
    rate_wrong_by: float
    rate_error: float


def drifting(comm: Any, rate: float, apart: float) -> Found:
    """Each rank's clock began `apart` seconds before, and runs `rate` faster than, that of the rank before it."""
    speed = 1 + rate * comm.rank
    clocks = ClockReadings()

    def own() -> float:
        return time.monotonic() * speed + apart * comm.rank

    with mock.patch("hpcnn.records.clocks.time", SimpleNamespace(monotonic=own)):
        clocks.measure(comm)
        time.sleep(0.05)
        middle = own()
        time.sleep(0.05)
        clocks.measure(comm)
    true = (middle - apart * comm.rank) / speed - middle
    drift = clocks.drift
    assert drift is not None
    wrong = abs(float(clocks.offset_at([middle])[0]) - true)
    return Found(len(clocks.readings), wrong, clocks.error, abs(drift.rate - (1 / speed - 1)), drift.error)


def seconds_of(comm: Any, script: Sequence[Sequence[tuple[float, str, str]]]) -> dict[str, tuple[float, float]]:
    """The phases' seconds and hidden seconds of a rank whose clock stands at what its part of `script` says.

    An entry is (time, what, members): what is a phase, "enter" or "leave" of a collective, "post" of one that is
    entered later, or "end".
    """
    stands = SimpleNamespace(at=0.0)
    with mock.patch("hpcnn.records.phases.time", SimpleNamespace(monotonic=lambda: stands.at)):
        clock = PhaseClock(begin=0.0, trace=True)
        posted, block = None, None
        for at, what, members in script[comm.rank]:
            stands.at = at
            if what == "post":
                posted = clock.operation("P0", "communicate")
            elif what == "enter":
                block = clock.collective(8, members, posted)
                block.__enter__()
            elif what == "leave":
                assert block is not None
                block.__exit__(None, None, None)
                posted = None
            elif what != "end":
                clock.switch(what)
        clock.resolve_waits(comm)
        rows = clock.rows()
        pieces = clock.traced()
    sums = {phase: (tally.seconds, tally.hidden_seconds) for _, phase, tally in rows}
    for phase, (seconds, _) in sums.items():
        assert abs(sum(piece.until - piece.since for piece in pieces if piece.phase == phase) - seconds) < 1e-9
    return sums
