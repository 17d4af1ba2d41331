from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ConfigError, LaunchError
from hpcnn.parallel.grid import Grid, parse_grid

COUNTS = st.integers(1, 6)


@given(COUNTS, COUNTS, COUNTS)
def test_every_rank_has_its_own_place_and_tensor_parts_are_neighbours(dp: int, pp: int, tp: int) -> None:
    grid = Grid(dp, pp, tp)
    places = [grid.place(rank) for rank in range(grid.size)]
    # Counted as nested loops would, replicas outermost and parts innermost.
    assert places == [(replica, stage, part) for replica in range(dp) for stage in range(pp) for part in range(tp)]


@given(COUNTS, COUNTS, COUNTS)
def test_a_grids_text_reads_back(dp: int, pp: int, tp: int) -> None:
    grid = Grid(dp, pp, tp)
    assert parse_grid(str(grid), grid.size) == grid


def test_without_a_text_all_ranks_are_replicas() -> None:
    assert parse_grid(None, 5) == Grid(dp=5, pp=1, tp=1)


def test_parts_may_be_left_out_and_stand_in_any_order() -> None:
    assert parse_grid("pp=3", 3) == Grid(dp=1, pp=3, tp=1)
    assert parse_grid(" tp=2, dp=4 ", 8) == Grid(dp=4, pp=1, tp=2)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "''"),
        ("4", "'4'"),
        ("dp", "'dp'"),
        ("dp=", "'dp='"),
        ("dp=0", "'dp=0'"),
        ("dp=-4", "'dp=-4'"),
        ("dp=4.0", "'dp=4.0'"),
        ("dp=four", "'dp=four'"),
        ("dp=\N{SUPERSCRIPT FOUR}", "'dp=\N{SUPERSCRIPT FOUR}'"),
        ("dp=4,", "''"),
        ("dp=4;pp=1", "'dp=4;pp=1'"),
        ("dp=2,xp=2", "'xp=2'"),
        ("DP=4", "'DP=4'"),
        ("dp=2,dp=2", "dp is given twice"),
    ],
)
def test_what_is_no_grid_is_refused_with_the_part_that_is_wrong(text: str, named: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_grid(text, 4)
    message = str(refusal.value)
    assert message.startswith(f"--grid {text!r}: {named}")
    assert "\n" not in message


@pytest.mark.parametrize("ranks", [1, 4, 12])
def test_a_grid_of_another_size_than_the_ranks_is_refused_with_the_remedy(ranks: int) -> None:
    message = rf"--grid dp=2,pp=3,tp=1 needs 6 ranks, not {ranks}: use mpirun -np 6"
    with pytest.raises(LaunchError, match=message):
        parse_grid("dp=2,pp=3", ranks)
