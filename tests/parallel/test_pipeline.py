"""Programs of stages: their messages, reductions and updates, written out, and matched for all sizes."""

from __future__ import annotations

from collections import defaultdict

import pytest

from hpcnn.parallel.checker import check_programs
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.pipeline import peak_slots, pipeline_programs, stage_program, with_messages, with_reductions
from hpcnn.parallel.program import (
    COMPUTING,
    RECEIVING,
    SENDING,
    Kind,
    Operation,
    Program,
    parse_program,
    program_text,
)
from hpcnn.parallel.schedules import SCHEDULES

MICRO_BATCHES = range(1, 14)
CASES = [
    (name, stages, chunks)
    for name in SCHEDULES
    for stages in range(1, 7)
    for chunks in ((2, 3) if name == "interleaved" else (1,))
    if name != "interleaved" or stages > 1
]


def texts(programs: list[Program]) -> list[str]:
    return [program_text(program) for program in programs]


def test_two_stages_of_1f1b() -> None:
    assert texts(pipeline_programs("1f1b", 2, 2)) == [
        "F0.0 S0.0 F0.1 S0.1 G0.0 B0.0 G0.1 B0.1 U0 H0",
        "A1.0 F1.0 L1.0 T1.0 A1.1 F1.1 L1.1 T1.1 U1 H0",
    ]


def test_the_same_in_several_replicas_reduces_each_stage() -> None:
    assert texts(pipeline_programs("1f1b", 2, 2, dp=3)) == [
        "F0.0 S0.0 F0.1 S0.1 G0.0 B0.0 G0.1 B0.1 R0 U0 H0",
        "A1.0 F1.0 L1.0 T1.0 A1.1 F1.1 L1.1 T1.1 R1 U1 H0",
    ]


def test_a_segment_whose_stage_goes_on_is_reduced_meanwhile() -> None:
    """The gradient's message leaves first: the stage before waits for it."""
    assert texts(pipeline_programs("interleaved", 2, 2, 2, dp=2)) == [
        "F0.0 S0.0 F0.1 S0.1 A2.0 F2.0 S2.0 A2.1 F2.1 S2.1 G2.0 B2.0 T2.0 G2.1 B2.1 T2.1 P2 G0.0 B0.0 G0.1 B0.1 R0 C2 "
        "U0 U2 H0",
        "A1.0 F1.0 S1.0 A1.1 F1.1 S1.1 A3.0 F3.0 L3.0 T3.0 A3.1 F3.1 L3.1 T3.1 P3 G1.0 B1.0 T1.0 G1.1 B1.1 T1.1 R1 C3 "
        "U1 U3 H0",
    ]


def test_split_backwards_send_before_the_weights_and_reduce_after_them() -> None:
    assert texts(pipeline_programs("zero-bubble", 3, 1, dp=2)) == [
        "F0.0 S0.0 G0.0 I0.0 W0.0 R0 U0 H0",
        "A1.0 F1.0 S1.0 G1.0 I1.0 T1.0 W1.0 R1 U1 H0",
        "A2.0 F2.0 J2.0 T2.0 W2.0 R2 U2 H0",
    ]


def test_one_stage_has_no_messages() -> None:
    assert texts(pipeline_programs("1f1b", 1, 2)) == ["F0.0 L0.0 F0.1 L0.1 U0"]
    assert texts(pipeline_programs("zero-bubble", 1, 2, dp=2)) == ["F0.0 J0.0 W0.0 F0.1 J0.1 W0.1 R0 U0"]


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize(("name", "stages", "chunks"), CASES)
def test_programs_of_all_sizes_match(name: str, stages: int, chunks: int, dp: int) -> None:
    """Nothing is sent that is not received in the same order, no rank waits for ever."""
    grid = Grid(dp=dp, pp=stages)
    for micro_batches in MICRO_BATCHES:
        programs = pipeline_programs(name, stages, micro_batches, chunks, dp)
        sent, received = defaultdict(list), defaultdict(list)
        for stage, program in enumerate(programs):
            for operation in program:
                if operation.kind in SENDING:
                    end = operation.other_end
                    sent[end.kind, end.segment].append(end)
                    assert end.segment % stages != stage
                elif operation.kind in RECEIVING:
                    received[operation.kind, operation.segment].append(operation)
        assert sent == received
        assert len(sent) == (2 * (stages * chunks - 1) if stages > 1 else 0)
        check_programs(programs * dp, grid, lambda rank, operation: 4)


@pytest.mark.parametrize(("name", "stages", "chunks"), CASES)
def test_what_is_added_does_not_change_the_order_of_computing(name: str, stages: int, chunks: int) -> None:
    for stage in range(stages):
        alone = stage_program(name, stage, stages, 5, chunks)
        replicated = stage_program(name, stage, stages, 5, chunks, dp=2)
        computed = [operation for operation in alone if operation.kind in COMPUTING]
        assert computed == SCHEDULES[name](stage, stages, 5, chunks)
        assert [operation for operation in replicated if operation.kind not in "RPC"] == list(alone)


def test_messages_stand_next_to_what_they_serve() -> None:
    compute = parse_program("F1.4 B1.4 F0.0 I0.0 W0.0 F2.3 J2.3 W2.3")
    assert program_text(tuple(with_messages(compute, 3))) == (
        "A1.4 F1.4 S1.4 G1.4 B1.4 T1.4 F0.0 S0.0 G0.0 I0.0 W0.0 A2.3 F2.3 J2.3 T2.3 W2.3"
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("F0.0 B0.0", "F0.0 B0.0 R0"),
        ("F1.0 B1.0 T1.0", "F1.0 B1.0 T1.0 R1"),
        ("F1.0 B1.0 T1.0 F1.1 B1.1 T1.1", "F1.0 B1.0 T1.0 F1.1 B1.1 T1.1 R1"),
        ("F0.0 F2.0 L2.0 T2.0 G0.0 B0.0", "F0.0 F2.0 L2.0 T2.0 P2 G0.0 B0.0 R0 C2"),
        ("F4.0 B4.0 F2.0 B2.0 F0.0 B0.0", "F4.0 B4.0 P4 F2.0 B2.0 P2 F0.0 B0.0 R0 C4 C2"),
        ("F1.0 I1.0 T1.0 F1.1 I1.1 T1.1 W1.1 W1.0", "F1.0 I1.0 T1.0 F1.1 I1.1 T1.1 W1.1 W1.0 R1"),
    ],
)
def test_a_reduction_starts_when_its_gradient_is_complete(given: str, expected: str) -> None:
    assert program_text(tuple(with_reductions(list(parse_program(given))))) == expected


def test_slots_are_counted_per_segment_or_together() -> None:
    program = parse_program("F0.0 F0.1 F2.0 F2.1 L2.0 F2.2 L2.1 B0.0 L2.2 B0.1")
    assert (peak_slots(program), peak_slots(program, 0), peak_slots(program, 2)) == (4, 2, 2)
    split = parse_program("F0.0 I0.0 F0.1 W0.0 I0.1 W0.1")
    assert peak_slots(split) == 2
    assert peak_slots((Operation(Kind.UPDATE, 0),)) == 0
