"""A strategy is tested as the table that it prints: a line an operation's place, a column a moment of the step."""

from __future__ import annotations

from textwrap import dedent

import pytest

from hpcnn import config
from hpcnn.errors import ConfigError, LaunchError
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.pipeline import pipeline_programs
from hpcnn.parallel.program import COMPUTING, Kind, program_text
from hpcnn.parallel.schedules import SCHEDULES
from hpcnn.parallel.strategies import STRATEGIES, make_program, register_strategy

PLACES = {kind: "compute" if kind in COMPUTING else "communicate" for kind in Kind} | {Kind.UPDATE: "update"}


def table(name: str, grid: Grid, rank: int, micro_batches: int) -> str:
    """The schedule table of one rank: each operation in its line and its own column."""
    program = make_program(name, grid, rank, micro_batches)
    lines = dict.fromkeys(("compute", "communicate", "update"), "")
    for operation in program:
        for place in lines:
            text = str(operation)
            lines[place] += " " + (text if PLACES[operation.kind] == place else " " * len(text))
    return "\n".join(f"{place:<12}{line}".rstrip() for place, line in lines.items() if line.strip())


def expected(text: str) -> str:
    return dedent(text).strip()


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_data_on_four_ranks_with_three_micro_batches(rank: int) -> None:
    assert table("data", Grid(dp=4), rank, 3) == expected("""
        compute      F0.0 L0.0 F0.1 L0.1 F0.2 L0.2
        communicate                                R0
        update                                        U0
    """)


def test_data_on_two_ranks_whole() -> None:
    assert table("data", Grid(dp=2), 1, 1) == expected("""
        compute      F0.0 L0.0
        communicate            R0
        update                    U0
    """)


def test_single_with_three_micro_batches() -> None:
    assert table("single", Grid(dp=1), 0, 3) == expected("""
        compute      F0.0 L0.0 F0.1 L0.1 F0.2 L0.2
        update                                     U0
    """)


@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_data_on_one_rank_is_single(micro_batches: int) -> None:
    assert make_program("data", Grid(dp=1), 0, micro_batches) == make_program("single", Grid(dp=1), 0, micro_batches)


def test_all_ranks_of_data_have_the_same_program() -> None:
    programs = {program_text(make_program("data", Grid(dp=5), rank, 2)) for rank in range(5)}
    assert programs == {"F0.0 L0.0 F0.1 L0.1 R0 U0"}


def test_single_on_several_ranks_is_refused() -> None:
    message = r"--strategy single is one process, but 4 ranks run: start one, or use --strategy data"
    with pytest.raises(LaunchError, match=message):
        make_program("single", Grid(dp=2, pp=2), 0, 1)


@pytest.mark.parametrize("grid", [Grid(dp=2, pp=2), Grid(dp=2, tp=2), Grid(dp=1, pp=2, tp=2)])
def test_data_with_stages_or_parts_is_refused(grid: Grid) -> None:
    with pytest.raises(LaunchError) as refusal:
        make_program("data", grid, 0, 1)
    assert str(refusal.value) == (
        f"--strategy data has one stage and one part, but --grid is {grid}: give dp={grid.size}"
    )


def test_a_stage_of_a_pipeline_with_three_micro_batches() -> None:
    assert table("pipeline", Grid(dp=1, pp=2), 0, 3) == expected("""
        compute      F0.0      F0.1           B0.0 F0.2           B0.1      B0.2
        communicate       S0.0      S0.1 G0.0           S0.2 G0.1      G0.2         H0
        update                                                                   U0
    """)
    assert table("pipeline", Grid(dp=1, pp=2), 1, 3) == expected("""
        compute           F1.0 L1.0           F1.1 L1.1           F1.2 L1.2
        communicate  A1.0           T1.0 A1.1           T1.1 A1.2           T1.2    H0
        update                                                                   U1
    """)


@pytest.mark.parametrize("replica", [0, 1, 2])
@pytest.mark.parametrize(("schedule", "chunks"), [(name, 2 if name == "interleaved" else 1) for name in SCHEDULES])
def test_each_replica_of_a_hybrid_has_the_programs_of_its_stages(schedule: str, chunks: int, replica: int) -> None:
    grid = Grid(dp=3, pp=2)
    programs = [make_program("hybrid", grid, 2 * replica + stage, 4, schedule, chunks) for stage in range(2)]
    assert programs == pipeline_programs(schedule, 2, 4, chunks, dp=3)


def test_the_schedule_is_1f1b_where_none_is_named() -> None:
    grid = Grid(dp=1, pp=3)
    assert make_program("pipeline", grid, 1, 4) == pipeline_programs("1f1b", 3, 4)[1]
    assert make_program("pipeline", grid, 1, 4, "gpipe") == pipeline_programs("gpipe", 3, 4)[1]


@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_a_pipeline_of_one_stage_is_single(micro_batches: int) -> None:
    assert make_program("pipeline", Grid(dp=1), 0, micro_batches) == make_program(
        "single", Grid(dp=1), 0, micro_batches
    )


@pytest.mark.parametrize("grid", [Grid(dp=2, pp=2), Grid(dp=4), Grid(dp=1, pp=2, tp=2)])
def test_a_pipeline_with_replicas_or_parts_is_refused(grid: Grid) -> None:
    with pytest.raises(LaunchError) as refusal:
        make_program("pipeline", grid, 0, 1)
    assert str(refusal.value) == (
        f"--strategy pipeline has one replica and one part, but --grid is {grid}: give pp={grid.size}, "
        "or use --strategy hybrid"
    )


@pytest.mark.parametrize("grid", [Grid(dp=1, pp=2), Grid(dp=4), Grid(dp=1), Grid(dp=2, pp=2, tp=2)])
def test_a_hybrid_without_replicas_or_stages_is_refused(grid: Grid) -> None:
    with pytest.raises(LaunchError) as refusal:
        make_program("hybrid", grid, 0, 1)
    assert str(refusal.value) == (
        f"--strategy hybrid has several replicas of several stages and one part, but --grid is {grid}: "
        "give dp=2,pp=2 or more, or use --strategy data or pipeline"
    )


def test_a_schedule_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="--schedule 'best' is unknown"):
        make_program("pipeline", Grid(dp=1, pp=2), 0, 1, "best")
    with pytest.raises(ConfigError, match="--schedule gpipe has one segment a stage, but --chunks is 2"):
        make_program("hybrid", Grid(dp=2, pp=2), 0, 1, "gpipe", 2)


def test_an_unknown_strategy_lists_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"--strategy 'date' is unknown: choose from single, data, pipeline, hybrid"):
        make_program("date", Grid(dp=1), 0, 1)


def test_the_flag_offers_exactly_the_strategies_that_there_are() -> None:
    assert set(config.STRATEGIES) == set(STRATEGIES)


def test_a_name_is_registered_once() -> None:
    before = dict(STRATEGIES)
    with pytest.raises(ConfigError, match="strategy 'data' is registered already: choose another name"):
        register_strategy("data")(lambda plan, rank: ())
    assert before == STRATEGIES
