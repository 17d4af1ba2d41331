"""A schedule is tested as the table in its docstring, and held to what its paper says of waiting and of open slots."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest

from hpcnn import config
from hpcnn.errors import ConfigError, LaunchError
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.pipeline import peak_slots, pipeline_programs
from hpcnn.parallel.program import COMPUTING, Kind, Operation, program_text
from hpcnn.parallel.schedules import SCHEDULES, check_schedule, compute_order, register_schedule
from hpcnn.parallel.timeline import play

WHOLE = (Kind.LOSS, Kind.BACKWARD)


def moments(name: str, stages: int, micro_batches: int, chunks: int, whole: int) -> list[list[str]]:
    """A row a stage: what begins in each moment, `-` while it goes on, `.` where the stage waits."""
    programs = pipeline_programs(name, stages, micro_batches, chunks)
    costs = {kind: whole if kind in WHOLE else 1 for kind in COMPUTING}
    timeline = play(programs, Grid(dp=1, pp=stages), lambda rank, operation: costs.get(operation.kind, 0))
    assert not timeline.stuck
    rows = [["."] * round(timeline.makespan) for _ in programs]
    for row, program, spans in zip(rows, programs, timeline.spans, strict=True):
        for operation, (begin, end) in zip(program, spans, strict=True):
            if operation.kind in COMPUTING:
                row[round(begin) : round(end)] = [str(operation), *["-"] * round(end - begin - 1)]
    return rows


def documented(name: str) -> list[list[str]]:
    rows = re.findall(r"^ *stage (\d)  (.*)$", SCHEDULES[name].__doc__ or "", re.MULTILINE)
    assert [int(stage) for stage, _ in rows] == list(range(len(rows)))
    return [cells.split() for _, cells in rows]


@pytest.mark.parametrize(
    ("name", "stages", "micro_batches", "chunks", "whole"),
    [
        ("layer-by-layer", 3, 2, 1, 2),
        ("gpipe", 3, 4, 1, 2),
        ("1f1b", 3, 4, 1, 2),
        ("interleaved", 2, 4, 2, 1),
        ("zero-bubble", 3, 4, 1, 2),
    ],
)
def test_a_schedule_is_the_table_in_its_docstring(
    name: str, stages: int, micro_batches: int, chunks: int, whole: int
) -> None:
    table = documented(name)
    assert moments(name, stages, micro_batches, chunks, whole) == table
    for stage, row in enumerate(table):
        order = compute_order(name, stage, stages, micro_batches, chunks)
        assert program_text(tuple(order)) == " ".join(cell for cell in row if cell not in (".", "-"))


def test_every_schedule_has_a_table() -> None:
    assert list(SCHEDULES) == ["layer-by-layer", "gpipe", "1f1b", "interleaved", "zero-bubble"]
    assert all(documented(name) for name in SCHEDULES)


def test_the_flag_offers_exactly_the_schedules_that_there_are() -> None:
    assert list(config.SCHEDULES) == list(SCHEDULES)


SIZES = list(product(range(1, 7), range(1, 14)))


@pytest.mark.parametrize(
    ("name", "moments_of"),
    [
        ("layer-by-layer", lambda p, m: 3 * m * p),
        ("gpipe", lambda p, m: 3 * (m + p - 1)),
        ("1f1b", lambda p, m: 3 * (m + p - 1)),
        ("zero-bubble", lambda p, m: 3 * m + p - 1 if m >= p else 2 * (m + p) - 1),
    ],
)
def test_a_step_lasts_as_long_as_theory_says(name: str, moments_of: Callable[[int, int], int]) -> None:
    lasted = {(p, m): len(moments(name, p, m, 1, 2)[0]) for p, m in SIZES}
    assert lasted == {(p, m): moments_of(p, m) for p, m in SIZES}


@pytest.mark.parametrize("chunks", [2, 3, 4])
@pytest.mark.parametrize("stages", [2, 3, 4, 6])
def test_interleaved_waits_as_its_paper_says_for_any_number_of_micro_batches(stages: int, chunks: int) -> None:
    """No multiple of the stages is needed; with fewer micro-batches than stages it still ends."""
    for micro_batches in range(1, 3 * stages + 2):
        rows = moments("interleaved", stages, micro_batches, chunks, 2)
        if micro_batches >= stages:
            assert len(rows[0]) == 3 * (chunks * micro_batches + stages - 1)


@pytest.mark.parametrize(
    ("name", "slots"),
    [
        ("layer-by-layer", lambda p, m, stage: 1),
        ("gpipe", lambda p, m, stage: m),
        ("1f1b", lambda p, m, stage: min(m, p - stage)),
        ("zero-bubble", lambda p, m, stage: min(m, p)),
    ],
)
def test_stored_micro_batches_are_those_of_theory(name: str, slots: Callable[[int, int, int], int]) -> None:
    for p, m in SIZES:
        programs = pipeline_programs(name, p, m)
        assert [peak_slots(program) for program in programs] == [slots(p, m, stage) for stage in range(p)]


def test_interleaved_keeps_as_many_as_its_paper_says() -> None:
    """Megatron's warm-up: 2 (p - 1 - stage) + (v - 1) p forwards before the first backward, and one more."""
    for stage, program in enumerate(pipeline_programs("interleaved", 4, 16, 3)):
        assert peak_slots(program) == 2 * (4 - 1 - stage) + 2 * 4 + 1


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_micro_batch_is_computed_once_in_each_segment(name: str) -> None:
    chunks = 3 if name == "interleaved" else 1
    for p, m in SIZES:
        if name == "interleaved" and p == 1:
            continue
        last = p * chunks - 1
        for stage in range(p):
            order = compute_order(name, stage, p, m, chunks)
            kinds = {s: "FJW" if name == "zero-bubble" else "FL" for s in (last,)}
            expected = [
                f"{letter}{segment}.{micro_batch}"
                for segment in range(stage, last + 1, p)
                for micro_batch in range(m)
                for letter in kinds.get(segment, "FIW" if name == "zero-bubble" else "FB")
            ]
            assert sorted(map(str, order)) == sorted(expected)


@pytest.mark.parametrize("name", ["layer-by-layer", "1f1b", "zero-bubble"])
def test_the_last_stage_goes_back_at_once(name: str) -> None:
    """So that a wrapper that computes forward and loss in one call can do so."""
    for p, m in SIZES:
        order = compute_order(name, p - 1, p, m)
        for place, operation in enumerate(order):
            if operation.kind is Kind.FORWARD:
                assert str(order[place + 1])[1:] == str(operation)[1:]
                assert order[place + 1].kind in (Kind.LOSS, Kind.LOSS_INPUT)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("gpip", 2, 1), ConfigError,
         "--schedule 'gpip' is unknown: choose from layer-by-layer, gpipe, 1f1b, interleaved, zero-bubble"),
        (("1f1b", 2, 3), ConfigError,
         "--schedule 1f1b has one segment a stage, but --chunks is 3: leave it out, or use --schedule interleaved"),
        (("interleaved", 2, 1), ConfigError,
         "--schedule interleaved needs --chunks of at least 2 (segments a stage), not 1"),
        (("interleaved", 1, 2), LaunchError,
         "--schedule interleaved needs at least 2 stages, not 1: give --grid pp=2 or more"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(arguments: tuple[str, int, int], error: type[Exception], message: str) -> None:
    name, stages, chunks = arguments
    with pytest.raises(error) as refusal:
        check_schedule(name, stages, chunks)
    assert str(refusal.value) == message
    with pytest.raises(error):
        compute_order(name, 0, stages, 4, chunks)


def test_a_name_is_registered_once() -> None:
    before = dict(SCHEDULES)
    with pytest.raises(ConfigError, match="schedule 'gpipe' is registered already: choose another name"):
        register_schedule("gpipe")(lambda stage, stages, micro_batches, chunks: [Operation(Kind.FORWARD, 0, 0)])
    assert before == SCHEDULES
