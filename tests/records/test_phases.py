"""Phases are exclusive and sum to the wall time, whatever a rank does."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.records.phases import PHASES, PhaseClock, Tally, process_start
from tests.support.mpi import REPOSITORY

# A sum of n float64 differences of clock readings of about 1e6 s: 1e-10 s each.
ROUNDING = 1e-6
ACTIONS = st.lists(st.sampled_from([*PHASES, "during", "collective", "epoch", "resolve", "rows"]), max_size=30)


def act(clock: PhaseClock, action: str) -> None:
    if action == "during":
        with clock.during("evaluate"):
            clock.switch("load")
    elif action == "collective":
        with clock.collective(8):
            pass
    elif action == "epoch":
        clock.resolve_waits(None)
        clock.set_epoch(clock.epoch + 1)
    elif action == "resolve":
        clock.resolve_waits(None)
    elif action == "rows":
        clock.rows()
    else:
        clock.switch(action)


@given(ACTIONS)
def test_phases_sum_to_the_wall_time_after_any_sequence_of_actions(actions: list[str]) -> None:
    clock = PhaseClock(begin=time.monotonic())
    for action in actions:
        act(clock, action)
    clock.resolve_waits(None)
    before = clock.wall_seconds()
    total = sum(tally.seconds for _, _, tally in clock.rows())
    assert before - ROUNDING <= total <= clock.wall_seconds() + ROUNDING


@given(ACTIONS)
def test_rows_are_ordered_and_each_tally_is_consistent(actions: list[str]) -> None:
    clock = PhaseClock(begin=time.monotonic())
    for action in actions:
        act(clock, action)
    rows = clock.rows()
    order = {phase: place for place, phase in enumerate(PHASES)}
    keys = [(epoch, order[phase]) for epoch, phase, _ in rows]
    assert keys == sorted(set(keys))
    for _, _, tally in rows:
        assert tally.count >= 1
        assert 0 <= tally.minimum <= tally.maximum <= tally.seconds + ROUNDING
        assert tally.seconds <= tally.count * tally.maximum + ROUNDING


def test_time_goes_to_the_phase_that_runs_and_back_after_a_block() -> None:
    clock = PhaseClock(begin=time.monotonic())
    clock.set_epoch(1)
    clock.switch("forward")
    time.sleep(0.02)
    with clock.during("evaluate"):
        time.sleep(0.03)
    assert clock.phase == "forward"
    found = {(epoch, phase): tally.seconds for epoch, phase, tally in clock.rows()}
    assert found[1, "forward"] >= 0.02
    assert found[1, "evaluate"] >= 0.03
    assert (0, "start") in found


def test_a_block_that_raises_ends_its_phase() -> None:
    clock = PhaseClock(begin=time.monotonic())
    clock.switch("load")
    with pytest.raises(ValueError, match="x"), clock.during("evaluate"):
        raise ValueError("x")
    assert clock.phase == "load"


def test_a_collective_of_one_process_is_communication_without_a_wait() -> None:
    clock = PhaseClock(begin=time.monotonic())
    with clock.collective(1000):
        time.sleep(0.02)
    clock.resolve_waits(None)
    found = {phase: tally for _, phase, tally in clock.rows()}
    assert found["wait"].seconds == 0
    assert found["communicate"].seconds >= 0.02
    assert (found["communicate"].bytes, found["communicate"].count) == (1000, 1)


def test_a_tally_keeps_count_sum_extremes_and_bytes() -> None:
    tally = Tally()
    for seconds, size in ((0.5, 10), (0.25, 0), (1.0, 5)):
        tally.add(seconds, size)
    assert (tally.count, tally.seconds, tally.minimum, tally.maximum, tally.bytes) == (3, 1.75, 0.25, 1.0, 15)


def test_events_are_kept_for_a_trace_only_and_follow_without_gaps() -> None:
    assert PhaseClock().events is None
    clock = PhaseClock(trace=True)
    for phase in ("load", "forward", "backward"):
        clock.switch(phase)
    assert clock.events is not None
    assert [event.phase for event in clock.events] == ["start", "load", "forward"]
    assert all(first.until == second.since for first, second in zip(clock.events, clock.events[1:], strict=False))


def test_an_operation_lasts_to_the_next_one_or_switch_and_through_blocks() -> None:
    clock = PhaseClock(trace=True)
    clock.step = 7
    clock.operation("F0.2", "forward")
    with clock.during("load"):
        pass
    with clock.collective(8, operation="R0"):
        clock.rows()
    clock.operation("R1", "communicate")
    with clock.collective(8):
        pass
    clock.switch("other")
    clock.switch("load")
    clock.resolve_waits(None)
    found = [(event.phase, event.operation) for event in clock.traced()]
    assert found == [
        ("start", ""), ("forward", "F0.2"), ("load", "F0.2"), ("forward", "F0.2"), ("communicate", "R0"),
        ("communicate", "R0"), ("other", ""), ("communicate", "R1"), ("communicate", "R1"), ("communicate", "R1"),
        ("other", ""), ("load", ""), ("other", ""),
    ]  # fmt: skip
    assert {event.step for event in clock.traced() if event.operation} == {7}


@given(ACTIONS)
def test_what_is_traced_has_no_gaps_and_the_phases_seconds(actions: list[str]) -> None:
    clock = PhaseClock(begin=time.monotonic(), trace=True)
    for action in actions:
        act(clock, action)
    clock.resolve_waits(None)
    sums = dict.fromkeys(PHASES, 0.0)
    for _, phase, tally in clock.rows():
        sums[phase] += tally.seconds
    pieces = clock.traced()
    assert pieces[0].since == clock.begin
    assert all(first.until == second.since for first, second in itertools.pairwise(pieces))
    for phase in PHASES:
        traced = sum(piece.until - piece.since for piece in pieces if piece.phase == phase)
        assert traced == pytest.approx(sums[phase], abs=ROUNDING)


def test_the_clock_starts_when_the_process_did_so_that_imports_count() -> None:
    script = (
        "import time; began = time.monotonic(); time.sleep(0.3)\n"
        "from hpcnn.records.phases import PhaseClock\n"
        "clock = PhaseClock(); print(clock.wall_seconds(), time.monotonic() - began)"
    )
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    wall, slept = map(float, done.stdout.split())
    # The kernel tells a process's start in ticks (10 ms), rounded down.
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert slept - 2 * tick <= wall <= time.monotonic() - before + 2 * tick
    assert process_start() <= time.monotonic()
