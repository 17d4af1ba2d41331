from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.parallel.grid import Grid
from hpcnn.parallel.pipeline import pipeline_programs
from hpcnn.parallel.program import Kind, Operation, parse_program
from hpcnn.parallel.timeline import channel_of, members_of, play, unit_cost

STAGES, MICRO_BATCHES = st.integers(1, 8), st.integers(1, 16)


@given(st.sampled_from(("gpipe", "1f1b")), STAGES, MICRO_BATCHES)
def test_the_bubble_of_gpipe_and_1f1b_is_the_papers(schedule: str, p: int, m: int) -> None:
    timeline = play(pipeline_programs(schedule, p, m), Grid(1, p))
    assert timeline.stuck == {}
    assert timeline.makespan == 3 * (m + p - 1)
    assert timeline.bubble == pytest.approx((p - 1) / (m + p - 1))


@given(STAGES, MICRO_BATCHES)
def test_layer_by_layer_has_one_stage_at_work(p: int, m: int) -> None:
    assert play(pipeline_programs("layer-by-layer", p, m), Grid(1, p)).bubble == pytest.approx(1 - 1 / p)


@given(st.integers(2, 5), st.integers(1, 4), st.integers(2, 3))
def test_interleaved_divides_the_bubble_by_its_chunks(p: int, groups: int, chunks: int) -> None:
    m = p * groups
    bubble = play(pipeline_programs("interleaved", p, m, chunks), Grid(1, p)).bubble
    assert bubble == pytest.approx((p - 1) / (chunks * m + p - 1))


@given(st.integers(2, 6), st.integers(0, 6))
def test_zero_bubble_waits_less_than_1f1b(p: int, more: int) -> None:
    m = p + more
    spans = {name: play(pipeline_programs(name, p, m), Grid(1, p)).makespan for name in ("1f1b", "zero-bubble")}
    assert spans["zero-bubble"] < spans["1f1b"]


def test_spans_are_those_of_a_schedule_drawn_by_hand() -> None:
    programs = [
        parse_program("F0.0 S0.0 F0.1 S0.1 G0.0 B0.0 G0.1 B0.1 U0 H0"),
        parse_program("A1.0 F1.0 L1.0 T1.0 A1.1 F1.1 L1.1 T1.1 U1 H0"),
    ]
    timeline = play(programs, Grid(1, 2))
    assert timeline.spans[0] == ((0, 1), (1, 1), (1, 2), (2, 2), (4, 4), (4, 6), (7, 7), (7, 9), (9, 9), (9, 9))
    assert timeline.spans[1] == ((1, 1), (1, 2), (2, 4), (4, 4), (4, 4), (4, 5), (5, 7), (7, 7), (7, 7), (9, 9))
    assert (timeline.busy(0), timeline.busy(1), timeline.makespan) == (6, 6, 9)


def test_costs_may_differ_by_rank() -> None:
    def cost(rank: int, operation: Operation) -> float:
        return unit_cost(rank, operation) * (1 + rank)

    timeline = play([parse_program("F0.0 L0.0 R0 U0")] * 2, Grid(2), cost)
    assert timeline.spans[0][2] == timeline.spans[1][2] == (6, 6)
    assert timeline.bubble == pytest.approx(0.25)


def test_a_posted_reduction_lets_its_rank_go_on() -> None:
    late = parse_program("F0.0 F1.0 L1.0 P1 B0.0 P0 C1 C0 U0 U1")

    def cost(rank: int, operation: Operation) -> float:
        return unit_cost(rank, operation) + 3 * (rank == 1 and operation.kind is Kind.FORWARD)

    timeline = play([late, late], Grid(2), cost)
    assert timeline.spans[0][3:8] == ((4, 4), (4, 6), (6, 6), (10, 10), (12, 12))


def test_who_waits_for_ever_is_stuck_at_its_place_and_the_others_go_on() -> None:
    programs = [parse_program("F0.0 S0.0 F0.1 G0.0 B0.0"), parse_program("A1.0 F1.0 L1.0")]
    timeline = play(programs, Grid(1, 2))
    assert timeline.stuck == {0: 3}
    assert timeline.ends == (2, 4)


def test_channels_and_members() -> None:
    grid = Grid(dp=2, pp=3, tp=2)
    send, accept = parse_program("S1.4 A2.4")
    here, there = (0 * 3 + 1) * 2 + 1, (0 * 3 + 2) * 2 + 1
    assert channel_of(grid, here, send) == channel_of(grid, there, accept) == (here, there, Kind.ACCEPT, 2)
    wrap, back = parse_program("S2.0 A3.0")
    assert channel_of(grid, there, wrap) == channel_of(grid, 1, back) == (there, 1, Kind.ACCEPT, 3)
    share, reduce = parse_program("H0 R1")
    assert members_of(grid, here, share) == (1, 3, 5)
    assert members_of(grid, here, reduce) == (3, 9)
    with pytest.raises(ValueError, match="U0 is no collective"):
        members_of(grid, 0, parse_program("U0")[0])
    with pytest.raises(ValueError, match="U0 is no message"):
        channel_of(grid, 0, parse_program("U0")[0])


def test_nothing_to_do_takes_no_time() -> None:
    timeline = play([()], Grid(1))
    assert (timeline.makespan, timeline.bubble, timeline.stuck) == (0, 0, {})
