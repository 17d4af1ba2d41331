"""Waiting and clocks on real ranks: who is late, and how far clocks are apart."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.mpi import run_ranks

SCRIPT = str(Path(__file__).with_name("times_on_ranks.py"))
RANKS = pytest.mark.parametrize("ranks", [1, 2, 3, 4])
CLOCKS = pytest.mark.parametrize("apart", [0.0, 1000.0])

LATE = 0.2
TIMES = 2
# More ranks than cores take turns: up to 0.021 s were seen, four ranks on two cores with ten other processes.
SCHEDULING = 0.1


@functools.cache
def reports(ranks: int, apart: float) -> list[dict[str, Any]]:
    run = run_ranks(ranks, [SCRIPT, str(ranks - 1), str(LATE), str(apart)])
    assert run.returncode == 0, run.stderr
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


@RANKS
@CLOCKS
def test_all_wait_for_the_late_rank_and_it_for_none(ranks: int, apart: float) -> None:
    late = reports(ranks, apart)[-1]
    assert late["seconds"]["wait"] <= SCHEDULING
    assert late["seconds"]["forward"] >= TIMES * LATE
    for other in reports(ranks, apart)[:-1]:
        assert other["seconds"]["wait"] >= TIMES * LATE - SCHEDULING
        assert other["seconds"]["forward"] <= SCHEDULING
        assert other["seconds"]["communicate"] <= SCHEDULING


@RANKS
@CLOCKS
def test_phases_of_every_rank_sum_to_its_wall_time(ranks: int, apart: float) -> None:
    for report in reports(ranks, apart):
        before, after = report["wall"]
        assert before - 1e-6 <= report["total"] <= after + 1e-6


@RANKS
@CLOCKS
def test_the_offset_to_rank_0s_clock_is_right_within_the_error_that_it_tells(ranks: int, apart: float) -> None:
    for report in reports(ranks, apart):
        # Readings of a clock near 1e3 to 1e6 s are themselves rounded to 1e-10 s.
        assert abs(report["offset"] - report["true_offset"]) <= report["error"] + 1e-9
        assert report["error"] < SCHEDULING


@RANKS
def test_bytes_are_those_of_the_messages(ranks: int) -> None:
    assert {report["bytes"] for report in reports(ranks, 0.0)} == {TIMES * 8000}


def test_the_mpi_library_is_the_file_that_is_mapped() -> None:
    for report in reports(2, 0.0):
        assert Path(report["library"]).name.startswith("libmpi")
        assert Path(report["library"]).is_file()
