from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from hpcnn.parallel.grid import Grid
from hpcnn.parallel.pipeline import pipeline_programs
from hpcnn.parallel.program import COMPUTING, parse_program
from hpcnn.parallel.table import schedule_table


def test_1f1b_as_its_paper_draws_it() -> None:
    assert schedule_table(pipeline_programs("1f1b", 3, 4), Grid(1, 3)).splitlines() == [
        "time             0  1  2  3  4  5  6  7  8  9  10 11 12 13 14 15 16 17",
        "rank 0 stage 0   F0 F1 F2 .  .  .  .  B0 -- F3 B1 -- .  B2 -- .  B3 --",
        "rank 1 stage 1   .  F0 F1 .  .  B0 -- F2 B1 -- F3 B2 -- .  B3 -- .  .",
        "rank 2 stage 2   .  .  F0 L0 -- F1 L1 -- F2 L2 -- F3 L3 -- .  .  .  .",
    ]


def test_several_segments_a_rank_are_named() -> None:
    assert schedule_table(pipeline_programs("interleaved", 2, 2, 2), Grid(1, 2)).splitlines()[:2] == [
        "time             0    1    2    3    4    5    6    7    8    9    10   11   12   13   14",
        "rank 0 stage 0   F0.0 F0.1 F2.0 F2.1 .    .    B2.0 ---- .    B2.1 ---- B0.0 ---- B0.1 ----",
    ]


def test_replicas_that_do_the_same_are_shown_once() -> None:
    program = parse_program("F0.0 L0.0 R0 U0")
    assert schedule_table([program] * 3, Grid(3)).splitlines() == [
        "time               0  1  2",
        "rank 0 replica 0   F0 L0 --",
        "the other 2 replicas do the same",
    ]
    assert schedule_table([program] * 2, Grid(2)).splitlines()[-1] == "the other replica does the same"
    other = parse_program("L0.0 F0.0 R0 U0")
    assert schedule_table([program, other], Grid(2)).splitlines()[1:] == [
        "rank 0 replica 0   F0 L0 --",
        "rank 1 replica 1   L0 -- F0",
    ]


def test_a_mark_in_another_replica_shows_it() -> None:
    lines = schedule_table([parse_program("F0.0 L0.0 R0 U0")] * 2, Grid(2), mark=(1, 2)).splitlines()
    assert lines[1:] == [
        "rank 0 replica 0   F0 L0 --",
        "rank 1 replica 1   F0 L0 --",
        "                            ^ R0",
    ]


def test_who_waits_for_ever_says_in_what() -> None:
    lines = schedule_table([parse_program("F0.0 F0.1 G0.0 B0.0"), parse_program("A1.0 F1.0")], Grid(1, 2)).splitlines()
    assert lines[1:] == ["rank 0 stage 0   F0 F1 waits in G0.0", "rank 1 stage 1   .  .  waits in A1.0"]


def test_a_mark_behind_the_last_operation() -> None:
    lines = schedule_table([parse_program("F0.0 L0.0")], Grid(1), mark=(0, 2)).splitlines()
    assert lines[1:] == ["rank 0   F0 L0 --", "                  ^ its end"]


def test_an_empty_program_has_a_row() -> None:
    assert schedule_table([()], Grid(1)).splitlines() == ["time", "rank 0"]


@given(st.integers(1, 5), st.integers(1, 60), st.integers(40, 150), st.integers(0, 4), st.integers(0, 400))
def test_a_wide_table_is_cut_into_lines_and_keeps_its_mark(p: int, m: int, width: int, rank: int, place: int) -> None:
    programs = pipeline_programs("1f1b", p, m)
    mark = (rank % p, place % len(programs[0]))
    lines = schedule_table(programs, Grid(1, p), mark=mark, width=width).splitlines()
    assert max(map(len, lines)) <= width + len("^ F0.00")
    assert sum("^ " in line for line in lines) == 1
    assert len(lines) <= 6 * (p + 2) + 2
    assert lines[0].startswith("time")


@given(st.sampled_from(("layer-by-layer", "gpipe", "1f1b", "zero-bubble")), st.integers(1, 4), st.integers(1, 4))
def test_cells_are_the_programs_in_order(schedule: str, p: int, m: int) -> None:
    programs = pipeline_programs(schedule, p, m)
    lines = schedule_table(programs, Grid(1, p), width=1000).splitlines()[1:]
    for program, line in zip(programs, lines, strict=True):
        computing = [f"{one.kind.value}{one.micro_batch}" for one in program if one.kind in COMPUTING]
        assert re.findall(r"\b[A-Z]\d+", line) == computing
