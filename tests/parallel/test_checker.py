from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ProgramError
from hpcnn.parallel.checker import check_programs
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.pipeline import pipeline_programs
from hpcnn.parallel.program import Operation, parse_program

TWO_STAGES = (
    "F0.0 S0.0 F0.1 S0.1 G0.0 B0.0 G0.1 B0.1 U0 H0",
    "A1.0 F1.0 L1.0 T1.0 A1.1 F1.1 L1.1 T1.1 U1 H0",
)
SPLIT = ("F0.0 S0.0 G0.0 I0.0 W0.0 U0 H0", "A1.0 F1.0 J1.0 T1.0 W1.0 U1 H0")
ONE_STAGE = ("F0.0 F1.0 L1.0 B0.0 U0 U1",)
REPLICAS = ("F0.0 L0.0 R0 U0", "F0.0 L0.0 R0 U0")
POSTED = ("F0.0 L0.0 P0 C0 U0", "F0.0 L0.0 P0 C0 U0")
GRIDS = {TWO_STAGES: Grid(1, 2), SPLIT: Grid(1, 2), ONE_STAGE: Grid(1), REPLICAS: Grid(2), POSTED: Grid(2)}


FAULTS = [
    # a program's own rules
    (TWO_STAGES, 0, "F0.1", "F0.0", "operation 2, F0.0 (forward): F0.0 was before it, and a step has only one"),
    (TWO_STAGES, 0, "B0.1", "B0.0", "operation 7, B0.0 (backward): B0.0 was before it, and a step has only one"),
    (SPLIT, 0, "I0.0 W0.0", "I0.0 B0.0", "operation 4, B0.0 (backward): I0.0 was before it"),
    (SPLIT, 0, "I0.0 W0.0", "W0.0 I0.0", "operation 3, W0.0 (backward weights): there must be I0.0 before it"),
    (TWO_STAGES, 0, "F0.0 S0.0", "S0.0 F0.0", "operation 0, S0.0 (send): there must be F0.0 before it"),
    (TWO_STAGES, 0, "G0.0 B0.0", "B0.0 G0.0", "operation 4, B0.0 (backward): there must be G0.0 before it"),
    (TWO_STAGES, 1, "A1.0 F1.0", "F1.0 A1.0", "operation 0, F1.0 (forward): there must be A1.0 before it"),
    (TWO_STAGES, 1, "F1.0 L1.0", "L1.0 F1.0", "operation 1, L1.0 (loss): there must be F1.0 before it"),
    (TWO_STAGES, 1, "L1.0 T1.0", "T1.0 L1.0", "operation 2, T1.0 (transmit): there must be L1.0 or J1.0 before it"),
    (TWO_STAGES, 0, "B0.1 U0", "U0 B0.1", "operation 7, U0 (update): there must be B0.1 or W0.1 before it"),
    (TWO_STAGES, 0, "U0 H0", "U0 U0 H0", "operation 9, U0 (update): U0 was before it"),
    (TWO_STAGES, 0, " U0", "", "operation 8, H0 (share): there must be U0 before it"),
    (ONE_STAGE, 0, " U1", "", "is not complete: there must be U1 in this rank's program"),
    (TWO_STAGES, 1, " H0", "", "is not complete: there must be H0 in this rank's program"),
    (TWO_STAGES, 1, "U1 H0", "H0 U1", "operation 8, H0 (share): there must be U1 before it"),
    (TWO_STAGES, 0, "H0", "H1", "H1 (share): stages share the loss as H0"),
    (TWO_STAGES, 1, "L1.0", "B1.0", "operation 2, B1.0 (backward): the loss is the last segment's, which is 1: "
     "here must be L1.0 or J1.0"),
    (TWO_STAGES, 0, "B0.0", "L0.0", "operation 5, L0.0 (loss): the loss is the last segment's, which is 1: "
     "here must be B0.0 or I0.0"),
    (TWO_STAGES, 0, "F0.0", "F1.0", "operation 0, F1.0 (forward): segment 1 belongs to stage 1"),
    (TWO_STAGES, 0, "F0.0", "A0.0 F0.0", "operation 0, A0.0 (accept): no segment is before the first"),
    (TWO_STAGES, 1, "L1.0", "S1.0 L1.0", "operation 2, S1.0 (send): no segment is after the last"),
    (ONE_STAGE, 0, "F1.0", "S0.0 F1.0", "operation 1, S0.0 (send): a network of one stage has no messages"),
    (ONE_STAGE, 0, "F0.0 F1.0", "F1.0 F0.0", "operation 0, F1.0 (forward): there must be F0.0 before it"),
    (ONE_STAGE, 0, "L1.0 B0.0", "B0.0 L1.0", "operation 2, B0.0 (backward): there must be L1.0 or J1.0 before it"),
    (REPLICAS, 1, "R0 ", "", "operation 2, U0 (update): there must be R0 or C0 before it"),
    (REPLICAS, 1, "L0.0 R0", "R0 L0.0", "operation 1, R0 (reduce): there must be L0.0 or W0.0 before it"),
    (REPLICAS, 1, "R0", "R0 R0", "operation 3, R0 (reduce): R0 was before it"),
    (POSTED, 1, "P0", "P0 R0", "operation 3, R0 (reduce): P0 was before it"),
    (POSTED, 1, "P0 C0", "C0 P0", "operation 2, C0 (complete): there must be P0 before it"),
    (POSTED, 1, "C0 ", "", "operation 3, U0 (update): there must be R0 or C0 before it"),
    # messages
    (TWO_STAGES, 0, "S0.1 ", "", "rank 1 (replica 0, stage 1) is wrong at its operation 4, A1.1 (accept): "
     "its other end, S0.1 of rank 0, is not there"),
    (TWO_STAGES, 1, "T1.0 ", "", "rank 0 (replica 0, stage 0) is wrong at its operation 4, G0.0 (get): "
     "its other end, T1.0 of rank 1, is not there"),
    (TWO_STAGES, 0, "S0.1", "S0.1 S0.1", "operation 4, S0.1 (send): S0.1 was before it"),
    (TWO_STAGES, 0, "S0.0 F0.1 S0.1", "F0.1 S0.1 S0.0", "rank 1 (replica 0, stage 1) is wrong at its operation 0, "
     "A1.0 (accept): the message that comes there is S0.1 of rank 0"),
    # collectives
    (POSTED, 1, "P0 C0", "R0", "operation 2, R0 (reduce): rank 0 enters P0 meanwhile"),
    # circles
    (TWO_STAGES, 0, "F0.0 S0.0 F0.1 S0.1 G0.0", "F0.0 G0.0 S0.0 F0.1 S0.1", "rank 0 (replica 0, stage 0) is wrong "
     "at its operation 1, G0.0 (get): rank 0 waits in G0.0 for rank 1, rank 1 waits in A1.0 for rank 0, for ever"),
]  # fmt: skip
"""Programs that are right, a rank, a part of its program and what it is changed to, and words of the refusal."""


def changed(texts: tuple[str, ...], rank: int, old: str, new: str) -> tuple[str, ...]:
    assert old in texts[rank]
    return (*texts[:rank], texts[rank].replace(old, new, 1), *texts[rank + 1 :])


INTERLEAVED = (
    "F0.0 S0.0 A2.0 F2.0 S2.0 G2.0 B2.0 T2.0 G0.0 B0.0 R2 R0 U0 U2 H0",
    "A1.0 F1.0 S1.0 A3.0 F3.0 L3.0 T3.0 R3 G1.0 B1.0 T1.0 R1 U1 U3 H0",
)
OTHER_ORDER = (*INTERLEAVED, INTERLEAVED[0], INTERLEAVED[1].replace("R3 G1.0 B1.0 T1.0 R1", "G1.0 B1.0 T1.0 R1 R3"))
"""Two replicas of two stages of two segments; the last rank reduces them in another order than its other replica."""


def check(texts: tuple[str, ...], grid: Grid) -> None:
    check_programs([parse_program(text) for text in texts], grid)


def refusal(texts: tuple[str, ...], grid: Grid) -> tuple[str, str]:
    """The first line, and the table below it."""
    with pytest.raises(ProgramError) as error:
        check(texts, grid)
    line, _, table = str(error.value).partition("\n")
    return line, table


@pytest.mark.parametrize("texts", GRIDS)
def test_right_programs_pass(texts: tuple[str, ...]) -> None:
    check(texts, GRIDS[texts])


@given(
    st.sampled_from(("layer-by-layer", "gpipe", "1f1b", "interleaved", "zero-bubble")),
    st.integers(1, 6), st.integers(1, 13), st.integers(2, 3), st.integers(1, 3),
)  # fmt: skip
def test_every_schedules_programs_pass(schedule: str, stages: int, micro_batches: int, chunks: int, dp: int) -> None:
    if schedule == "interleaved":
        stages = max(2, stages)
    programs = pipeline_programs(schedule, stages, micro_batches, chunks if schedule == "interleaved" else 1, dp)
    check_programs(dp * programs, Grid(dp, stages))


@pytest.mark.parametrize(("texts", "rank", "old", "new", "words"), FAULTS)
def test_a_fault_is_named_with_its_rank_stage_and_operation(
    texts: tuple[str, ...], rank: int, old: str, new: str, words: str
) -> None:
    line, table = refusal(changed(texts, rank, old, new), GRIDS[texts])
    assert words in line
    assert "\n" in table or len(texts) == 1
    assert "^ " in table


def test_the_table_marks_the_place() -> None:
    line, table = refusal((TWO_STAGES[0], TWO_STAGES[1].replace("A1.1 F1.1", "F1.1 A1.1")), Grid(1, 2))
    assert line == (
        "the program of rank 1 (replica 0, stage 1) is wrong at its operation 4, F1.1 (forward): "
        "there must be A1.1 before it"
    )
    assert table.splitlines() == [
        "time             0  1  2  3  4  5  6  7  8",
        "rank 0 stage 0   F0 F1 .  .  B0 -- .  B1 --",
        "rank 1 stage 1   .  F0 L0 -- F1 L1 -- .  .",
        "                             ^ F1.1",
    ]


def test_replicas_that_reduce_in_different_orders() -> None:
    check(INTERLEAVED * 2, Grid(2, 2))
    assert "R1 (reduce): rank 1 enters R3 meanwhile" in refusal(OTHER_ORDER, Grid(2, 2))[0]


def test_a_circle_of_three_stages() -> None:
    line, table = refusal(
        (
            "F0.0 G0.0 S0.0 B0.0 U0 H0",
            "A1.0 F1.0 S1.0 G1.0 B1.0 T1.0 U1 H0",
            "A2.0 F2.0 L2.0 T2.0 U2 H0",
        ),
        Grid(1, 3),
    )
    assert line == (
        "the program of rank 0 (replica 0, stage 0) is wrong at its operation 1, G0.0 (get): "
        "rank 0 waits in G0.0 for rank 1, rank 1 waits in A1.0 for rank 0, for ever: one of them must send first"
    )
    assert "waits in A2.0" in table


def test_two_ends_of_different_sizes() -> None:
    programs = [parse_program(text) for text in TWO_STAGES]

    def size_of(rank: int, operation: Operation) -> int:
        return 1000 + (str(operation) == "G0.1")

    with pytest.raises(ProgramError, match=r"G0\.1 \(get\): it expects 1,001 bytes and T1\.1 of rank 1 has 1,000"):
        check_programs(programs, Grid(1, 2), size_of)


def test_replicas_that_add_different_sizes() -> None:
    programs = [parse_program(text) for text in REPLICAS]
    with pytest.raises(ProgramError, match=r"R0 \(reduce\): it adds 5 bytes and R0 of rank 0 4: give them one size"):
        check_programs(programs, Grid(2), lambda rank, operation: 4 + rank)


def test_a_micro_batch_without_rows_makes_nobody_wait() -> None:
    programs = [
        parse_program("F0.0 S0.0 F0.1 G0.0 S0.1 B0.0 G0.1 B0.1 U0 H0"),
        parse_program("A1.0 F1.0 A1.1 F1.1 L1.0 T1.0 L1.1 T1.1 U1 H0"),
    ]
    with pytest.raises(ProgramError, match="for ever"):
        check_programs(programs, Grid(1, 2))
    check_programs(programs, Grid(1, 2), lambda rank, operation: 0 if operation.micro_batch == 1 else 100)


def test_programs_for_other_ranks_than_the_grids() -> None:
    with pytest.raises(ProgramError, match="1 programs for the 2 ranks of dp=1,pp=2,tp=1: give one a rank"):
        check(TWO_STAGES[:1], Grid(1, 2))
