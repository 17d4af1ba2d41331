"""Offsets between clocks: the line between readings, and what real ranks measure of clocks that drift apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.records.clocks import ClockReadings, Reading
from tests.records.drifting_clocks import drifting
from tests.support.pool import on_ranks, results

RATE, APART = 1e-3, 1000.0


def test_between_readings_the_offset_lies_on_the_line_and_beyond_them_it_stays() -> None:
    clocks = ClockReadings([Reading(10.0, 5.0, 0.0), Reading(20.0, 6.0, 0.0), Reading(40.0, 4.0, 0.0)])
    times = [0.0, 10.0, 12.5, 20.0, 30.0, 40.0, 99.0]
    assert clocks.offset_at(times).tolist() == [5.0, 5.0, 5.25, 6.0, 5.0, 4.0, 4.0]


def test_the_drift_is_that_from_the_first_reading_to_the_last_with_both_errors() -> None:
    clocks = ClockReadings([Reading(10.0, 5.0, 0.5), Reading(20.0, 9.0, 2.0), Reading(30.0, 6.0, 1.0)])
    assert clocks.drift is not None
    assert (clocks.drift.rate, clocks.drift.error) == (1.0 / 20.0, 1.5 / 20.0)
    assert clocks.error == 2.0


def test_a_single_reading_tells_no_drift() -> None:
    assert ClockReadings([Reading(10.0, 5.0, 0.5)]).drift is None
    assert ClockReadings([Reading(10.0, 5.0, 0.5)] * 2).drift is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=5, unique=True), st.floats(0, 1e6), st.floats(-1e3, 1e3))
def test_readings_of_a_clock_that_does_not_drift_give_one_offset(
    places: list[float], time: float, offset: float
) -> None:
    clocks = ClockReadings([Reading(at, offset, 0.0) for at in sorted(places)])
    assert clocks.offset_at([time])[0] == pytest.approx(offset, abs=1e-9)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_of_clocks_that_drift_the_offset_is_right_within_its_error_between_readings(ranks: int) -> None:
    for rank, found in enumerate(results(on_ranks(ranks, drifting, RATE, APART))):
        assert found.readings == 2
        assert found.wrong_by <= found.error + 1e-9
        assert found.rate_wrong_by <= found.rate_error + 1e-9
        assert (found.error == 0) == (rank == 0)
