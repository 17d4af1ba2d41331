"""How a rank waits, on a clock that only waiting moves: what it gives up, when it sleeps, how late it sees the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.parallel import waiting
from hpcnn.parallel.waiting import ALONE_SECONDS, FIRST_SLEEP, LONGEST_SLEEP, SPIN_SECONDS, TURN_SECONDS, wait_until


@dataclass
class Clock:
    """`turn`: seconds that a turn takes which the rank has given up."""

    turn: float
    now: float = 0.0
    yielded: list[float] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sched_yield(self) -> None:
        self.yielded.append(self.now)
        self.now += self.turn

    def sleep(self, seconds: float) -> None:
        self.slept.append(self.now)
        self.now += seconds


def wait_on(clock: Clock, end: float, *, asleep: bool = False) -> Clock:
    """Until `end`, in seconds of the clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "time", clock)
        patch.setattr(waiting, "os", clock)
        wait_until(lambda: clock.now >= end, asleep=asleep)
    return clock


def test_what_is_ready_costs_no_turn() -> None:
    clock = wait_on(Clock(turn=1.0), 0.0)
    assert clock.yielded == clock.slept == []


def test_a_rank_alone_on_its_core_stays_awake_for_as_long_as_a_step_waits() -> None:
    clock = wait_on(Clock(turn=1e-5), 0.9 * ALONE_SECONDS)
    assert clock.yielded
    assert not clock.slept


def test_a_rank_that_waits_for_long_sleeps_and_keeps_no_core_busy() -> None:
    clock = wait_on(Clock(turn=1e-5), 100 * ALONE_SECONDS)
    assert max(clock.yielded) < ALONE_SECONDS <= min(clock.slept)


def test_a_rank_whose_turn_is_taken_sleeps_as_soon_as_it_sees_so() -> None:
    clock = wait_on(Clock(turn=2 * TURN_SECONDS), 0.9 * ALONE_SECONDS)
    assert len(clock.yielded) == 2  # the first shows it when it is over, which the second look sees
    assert clock.slept


def test_a_thread_beside_one_that_computes_gives_up_no_turn() -> None:
    clock = wait_on(Clock(turn=1e-5), 0.01, asleep=True)
    assert clock.slept[0] == 0.0
    assert not clock.yielded


@given(st.floats(0.0, 5.0), st.floats(1e-6, 3e-3), st.booleans())
def test_the_end_is_noticed_a_sixteenth_or_a_look_late(end: float, turn: float, asleep: bool) -> None:
    clock = wait_on(Clock(turn), end, asleep=asleep)
    assert end <= clock.now <= end + max(turn, FIRST_SLEEP, min(end / 16, LONGEST_SLEEP)) + 1e-9
    if turn > TURN_SECONDS + 1e-9:
        assert len(clock.yielded) * turn <= max(SPIN_SECONDS, 2 * turn) + 1e-9
