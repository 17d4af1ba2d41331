"""The benchmark of bubbles works: its theory is what our programs do where messages take no time, it counts rightly
what a trace shows, and a short run leaves whole files.

No time is judged that a test measured: what this machine did in a test says nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcnn.parallel.grid import Grid
from hpcnn.parallel.pipeline import peak_slots, pipeline_programs
from hpcnn.parallel.schedules import SCHEDULES
from hpcnn.parallel.timeline import play
from tests.support.mpi import REPOSITORY, run_session

BENCHMARKS = REPOSITORY / "jobs" / "benchmarks"
SCRIPT = BENCHMARKS / "pipeline_bubble.py"
COMMITTED = REPOSITORY / "results" / "benchmarks" / "pipeline_bubble.json"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its module, which finds its neighbours as it does when it is started."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("contest", "programs", "report", "bubble_figures", "pipeline_theory", "pipeline_bubble"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import pipeline_bubble

    return pipeline_bubble


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 2), (2, 8), (3, 6), (4, 4), (4, 8), (8, 16), (16, 16)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_theory_is_what_programs_do_where_messages_take_no_time(
    benchmark: Any, schedule: str, stages: int, micro_batches: int
) -> None:
    theory = benchmark.theory
    programs = pipeline_programs(schedule, stages, micro_batches, theory.CHUNKS.get(schedule, 1))
    played = play(programs, Grid(dp=1, pp=stages))
    assert theory.bubble(schedule, stages, micro_batches) == pytest.approx(played.bubble, abs=1e-12)
    assert theory.stored(schedule, stages, micro_batches) == [peak_slots(program) for program in programs]
    # a micro-batch is three units of work there and back, of interleaved in each of a stage's segments
    units = 3 * theory.CHUNKS.get(schedule, 1)
    assert theory.step_seconds(schedule, stages, micro_batches, units) == pytest.approx(played.makespan)


def test_the_benchmark_measures_every_schedule(benchmark: Any) -> None:
    assert set(benchmark.SCHEDULES) == set(SCHEDULES)
    assert list(benchmark.SIZES) == [4, 8, 16]


def traced(rank: int, step: int, *names: str) -> list[dict[str, Any]]:
    return [
        {"ph": "X", "pid": rank, "name": name, "ts": 10.0 * place, "args": {"step": step}}
        for place, name in enumerate(names)
    ]


def test_stored_micro_batches_are_counted_step_by_step_and_rank_by_rank(benchmark: Any) -> None:
    events = [
        *traced(0, 0, "F0.0", "S0.0", "F0.1", "G0.0", "B0.0", "F0.2", "B0.1", "B0.2"),
        *traced(0, 1, "F0.0", "F0.1", "F0.2", "B0.2", "B0.1", "B0.0"),
        *traced(1, 0, "A1.0", "F1.0", "L1.0", "F1.1", "L1.1", "U1"),
        *traced(2, 0, "F2.0", "J2.0", "F2.1", "I2.1", "W2.0", "W2.1", "R2", "H0"),
        {"ph": "X", "pid": 0, "name": "load", "ts": 1.0},
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "rank 0"}},
    ]
    assert benchmark.held({"traceEvents": events[::-1]}, 4) == [3, 1, 2, 0]


def test_an_operation_in_several_pieces_counts_once(benchmark: Any) -> None:
    twice = [*traced(0, 0, "F0.0", "F0.0", "B0.0"), *traced(0, 0, "F0.0")]
    assert benchmark.held({"traceEvents": twice}, 1) == [1]


def test_the_network_has_a_layer_for_every_segment(benchmark: Any, tmp_path: Path) -> None:
    from hpcnn.network.network_file import read_network
    from hpcnn.network.partition import partition

    path = tmp_path / "tall.toml"
    path.write_text(benchmark.network(32), encoding="utf-8")
    architecture = read_network(path, (1, 28, 28), 10)
    assert len(partition(architecture, 32, None)) == 32


def test_the_committed_bubbles_are_near_theory_and_what_is_stored_equals_it() -> None:
    results = json.loads(COMMITTED.read_text(encoding="utf-8"))
    for size in ("4 ranks, 8 micro-batches", "8 ranks, 16 micro-batches", "16 ranks, 16 micro-batches"):
        found = results[size]["schedules"]
        assert set(found) == set(SCHEDULES)
        for schedule, one in found.items():
            assert one["stored"] == one["stored_in_theory"], schedule
            assert abs(one["bubble"] - one["theory"]) < 0.05, schedule
    costs = results["executor"]["costs"]
    assert all(costs[name]["microseconds"] < 50 for name in ("one rank", "two stages, gpipe"))


@pytest.mark.slow
def test_a_quick_benchmark_leaves_whole_files(tmp_path: Path) -> None:
    tiny = ["--quick", "--seconds", "0.004", "--epochs", "2", "--schedules", "gpipe", "zero-bubble", "interleaved"]
    run = run_session([sys.executable, str(SCRIPT), *tiny, "--out", str(tmp_path)], timeout=400)
    assert run.returncode == 0, run.stderr
    assert run.left_behind == ()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md", ".png"]
    results = json.loads((tmp_path / "pipeline_bubble.json").read_text(encoding="utf-8"))
    assert list(results) == ["4 ranks, 8 micro-batches", "executor"]
    for schedule, one in results["4 ranks, 8 micro-batches"]["schedules"].items():
        assert one["stored"] == one["stored_in_theory"], schedule
        assert 0 < one["bubble"] < 1
        assert len(one["bubble_of_ranks"]) == 4
    assert [one["operations"] for one in results["executor"]["costs"].values()] == [513, 1026, 1026]
    table = (tmp_path / "pipeline_bubble.md").read_text(encoding="utf-8")
    assert "\n| zero-bubble | " in table
    assert "\n| two stages, gpipe | 1026 | " in table
