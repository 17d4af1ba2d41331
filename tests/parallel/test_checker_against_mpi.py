"""The checker's verdict on any programs is what a real run of them comes to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcnn.errors import ProgramError
from hpcnn.parallel.checker import check_programs
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.pipeline import pipeline_programs
from hpcnn.parallel.program import OF_REPLICAS, RECEIVING, SENDING, Kind, Program, parse_program, program_text
from tests.parallel.programs_on_ranks import run_programs
from tests.parallel.test_checker import FAULTS, GRIDS, INTERLEAVED, OTHER_ORDER, POSTED, TWO_STAGES
from tests.parallel.test_checker import changed as broken
from tests.support.pool import on_ranks, results

LAYOUTS = (
    ("1f1b", 2, 1, 1), ("1f1b", 3, 1, 1), ("1f1b", 4, 1, 1), ("1f1b", 2, 1, 2), ("1f1b", 1, 1, 2), ("1f1b", 1, 1, 3),
    ("gpipe", 2, 1, 1), ("gpipe", 3, 1, 1), ("gpipe", 2, 1, 2), ("layer-by-layer", 2, 1, 1),
    ("interleaved", 2, 2, 1), ("interleaved", 2, 2, 2), ("zero-bubble", 2, 1, 1), ("zero-bubble", 3, 1, 1),
)  # fmt: skip
"""(schedule, stages, chunks, replicas)."""

Fault = tuple[tuple[str, ...], int, str, str, str]
Case = tuple[list[Program], Grid, int, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Right programs with up to three changes, and their grid, segments and micro-batches."""
    schedule, stages, chunks, replicas = draw(st.sampled_from(LAYOUTS))
    micro_batches = draw(st.integers(1, 3))
    programs = replicas * pipeline_programs(schedule, stages, micro_batches, chunks, replicas)
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2, 3)))):
        rank = draw(st.integers(0, len(programs) - 1))
        programs[rank] = changed(draw, programs[rank])
    return programs, Grid(replicas, stages), stages * chunks, micro_batches


def changed(draw: st.DrawFn, program: Program) -> Program:
    """With one operation left out, given twice, moved, or exchanged for one of its kind; mostly of those that meet."""
    operations = list(program)
    meeting = [place for place, one in enumerate(operations) if one.kind in (*SENDING, *RECEIVING, *OF_REPLICAS)]
    place = draw(st.sampled_from(meeting or range(len(operations))) | st.integers(0, len(operations) - 1))
    change = draw(st.sampled_from(("move", "move", "exchange", "exchange", "drop", "repeat")))
    operation = operations[place]
    if change == "exchange":
        others = [other for other, one in enumerate(operations) if one.kind is operation.kind]
        other = draw(st.sampled_from(others))
        operations[place], operations[other] = operations[other], operation
        return tuple(operations)
    if change != "repeat":
        del operations[place]
    if change != "drop":
        target = place + draw(st.integers(-3, 3)) if draw(st.booleans()) else draw(st.integers(0, len(operations)))
        operations.insert(min(max(target, 0), len(operations)), operation)
    return tuple(operations)


def verdict(programs: list[Program], grid: Grid) -> str:
    try:
        check_programs(programs, grid)
    except ProgramError as error:
        return str(error)
    return ""


def run(case: Case, board: Path) -> str:
    """What a real run of the programs comes to: "" where it is right."""
    programs, grid, segments, micro_batches = case
    board.write_bytes(bytes(24 * grid.size))
    texts = [program_text(program) for program in programs]
    (words,) = set(results(on_ranks(grid.size, run_programs, texts, grid.pp, segments, micro_batches, str(board))))
    return words


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("board") / "board"


def test_the_checkers_verdict_is_that_of_a_real_run(board: Path) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=300, suppress_health_check=list(HealthCheck))
    @given(cases())
    def holds(case: Case) -> None:
        refused, failed = verdict(*case[:2]), run(case, board)
        assert bool(refused) == bool(failed), f"checker: {refused or 'right'}\nreal run: {failed or 'right'}"
        seen["right" if not failed else "stuck" if "for ever" in failed else "wrong"] += 1

    holds()
    assert min(seen["right"], seen["stuck"], seen["wrong"]) >= 10, seen


# An Allreduce does not meet an Iallreduce, but the driver makes one of the other, to look at it; H1 is but a name.
@pytest.mark.parametrize("fault", [one for one in FAULTS if (one[0], one[3]) != (POSTED, "R0") and one[3] != "H1"])
def test_every_fault_that_the_checker_knows_is_one_to_a_real_run(fault: Fault, board: Path) -> None:
    texts = fault[0]
    programs = [parse_program(text) for text in broken(*fault[:4])]
    segments = 1 if GRIDS[texts].dp > 1 else 2
    assert run((programs, GRIDS[texts], segments, 2 if texts is TWO_STAGES else 1), board)


def test_replicas_that_reduce_in_another_order_add_other_gradients(board: Path) -> None:
    for texts, words in ((INTERLEAVED * 2, ""), (OTHER_ORDER, "added gradients of several segments")):
        assert words in run(([parse_program(text) for text in texts], Grid(2, 2), 4, 1), board)


DEADLOCK = (
    "F0.0 S0.0 F0.1 G0.0 S0.1 B0.0 G0.1 B0.1 U0 H0",
    "A1.0 F1.0 A1.1 F1.1 L1.0 T1.0 L1.1 T1.1 U1 H0",
)


def test_a_circle_hangs_on_real_ranks_and_the_ranks_live_on(board: Path) -> None:
    programs = [parse_program(text) for text in DEADLOCK]
    for _ in range(3):
        assert "for ever" in run((programs, Grid(1, 2), 2, 2), board)
        assert run((pipeline_programs("1f1b", 2, 2), Grid(1, 2), 2, 2), board) == ""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_every_schedule_is_right_to_both(layout: tuple[str, int, int, int], micro_batches: int, board: Path) -> None:
    schedule, stages, chunks, replicas = layout
    programs = replicas * pipeline_programs(schedule, stages, micro_batches, chunks, replicas)
    grid = Grid(replicas, stages)
    assert verdict(programs, grid) == run((programs, grid, stages * chunks, micro_batches), board) == ""


def test_the_driver_notices_what_it_is_there_to_notice(board: Path) -> None:
    right = pipeline_programs("1f1b", 2, 2)
    without_share = [tuple(one for one in program if one.kind is not Kind.SHARE) for program in right]
    assert "not updated, or no loss" in run((without_share, Grid(1, 2), 2, 2), board)
    swapped = [right[0], parse_program("A1.1 F1.1 L1.1 T1.1 A1.0 F1.0 L1.0 T1.0 U1 H0")]
    assert "got the message of" in run((swapped, Grid(1, 2), 2, 2), board)
