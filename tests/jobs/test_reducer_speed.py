"""The benchmark of the reducers works: who is held against whom, what counts as exposed, and a short run's files.

No time is judged that a test measured: what this machine did in a test says nothing.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcnn.network.zoo import find_network
from tests.jobs.benchmark_modules import BENCHMARKS, benchmark_module
from tests.support.mpi import REPOSITORY, run_session

COMMITTED = REPOSITORY / "results" / "benchmarks" / "reducer_speed.json"
NETWORKS = ("cnn2d_3layer_fullconnected_3layer", "cnn2d_2layer_fullconnected_2layer")
DENSE = "cnn2d_2layer_fullconnected_3layer"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    return benchmark_module(monkeypatch, "reducer_speed")


@pytest.fixture
def options() -> argparse.Namespace:
    return argparse.Namespace(quick=False, batches=None, epochs=3, rows=4000)


def test_mpi_is_held_against_ddp_and_horovod_on_both_networks(benchmark: Any, options: Any) -> None:
    contests = list(benchmark.train(options))
    assert [one.name for one in contests] == [
        f"{network}, {rows} rows a rank" for network in NETWORKS for rows in (16, 64, 250, 500)
    ]
    for one in contests:
        names = [contestant.name for contestant in one.contestants]
        assert names[:3] == ["mpi", "plain", "DDP, tuned"]
        assert {ratio.slower: ratio.target for ratio in one.ratios}["DDP, tuned"] == 1.0
        assert all(ratio.target == 1.0 for ratio in one.ratios if "orovod" in ratio.slower)
        for contestant in one.contestants:
            (command,) = contestant.commands
            assert command[:2] == ("mpirun", "-np")
            assert command[command.index("--network") + 1] == one.settings["network"]
            assert "--tuned" in command or command[command.index("--reducer") + 1] == contestant.name


def test_frameworks_defaults_are_untuned_and_are_to_take_twice_as_long(benchmark: Any, options: Any) -> None:
    (contest,) = benchmark.defaults(options)
    assert contest.settings["batch"] == 1000
    assert all(ratio.target == 2.0 for ratio in contest.ratios)
    assert not any("--tuned" in command for one in contest.contestants for command in one.commands)


def test_the_dense_network_is_one_of_40_million_parameters(benchmark: Any) -> None:
    assert benchmark.DENSE == DENSE
    assert 38e6 < find_network(DENSE).build((1, 28, 28), 10).size < 44e6


def timed(folder: Path, *rows: tuple[int, int, str, float]) -> Path:
    """A run's table of times: epoch, rank, phase, seconds."""
    path = folder / "run" / "timing.csv"
    path.parent.mkdir(parents=True)
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["epoch", "rank", "phase", "seconds"])
        writer.writerows(rows)
    return path


def test_what_is_exposed_by_the_clock_is_communicate_and_wait_after_the_first_epoch(
    benchmark: Any, tmp_path: Path
) -> None:
    first, later = (0, 9.0), (2, 1.0)
    rows = [(epoch, rank, "wait", seconds) for epoch, seconds in (first, (1, 5.0), later) for rank in (0, 1)]
    rows += [(2, 0, "communicate", 2.0), (2, 1, "backward", 7.0), (3, 0, "forward", 1.0), (3, 1, "wait", 4.0)]
    path = timed(tmp_path, *rows)
    assert sys.modules["exposed"].talking(path) == (3.0 + 1.0 + 0.0 + 4.0) / 4


def test_what_a_step_costs_is_beyond_two_that_do_not_talk_and_judged_within_rounds(
    benchmark: Any, tmp_path: Path
) -> None:
    exposed = sys.modules["exposed"]
    clocked = exposed.Clocked()
    for turn, (mpi, plain) in enumerate([(0.2, 1.0), (0.4, 0.5), (0.6, 2.0)]):
        for name, seconds in (("mpi", mpi), ("plain", plain)):
            timed(tmp_path / f"{name}{turn}", (2, 0, "wait", 2 * seconds), (2, 0, "forward", 1.0))
            clocked.reader(name, 2)(tmp_path / f"{name}{turn}")

    def turns(*seconds: float) -> dict[str, Any]:
        """Of an epoch after warm-up; the second process is faster."""
        return {"samples": [{"epoch_seconds": [[9.0, each], [9.0, each / 2]]} for each in seconds]}

    held = {
        "contestants": {
            "mpi": turns(10.0, 12.0, 11.0), "plain": turns(14.0, 14.0, 14.0), "DDP": turns(15.0, 12.0, 13.0),
            "two": turns(8.0, 10.0, 10.0), "others": turns(10.0, 10.0, 10.0),
        }
    }  # fmt: skip
    found = exposed.exposed(held, clocked, {"mpi": "two", "DDP": "others"}, 2, ("mpi", "plain"), "DDP")
    assert found["beyond_two_alone"]["mpi"]["rounds"] == [1.0, 1.0, 0.5]
    assert found["beyond_two_alone"]["DDP"]["rounds"] == [2.5, 1.0, 1.5]
    half, more = found["judged"]
    assert half["rounds"] == pytest.approx([0.2, 0.8, 0.3])
    assert (half["median"], half["at_most"], half["reached"]) == (pytest.approx(0.3), 0.5, True)
    assert (more["rounds"], more["at_most"], more["reached"]) == ([-1.5, 0.0, -1.0], 0.0, True)


@pytest.mark.needs("torch")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
def test_a_quick_benchmark_leaves_whole_files(tmp_path: Path) -> None:
    tiny = ["--quick", "--rounds", "1", "--rows", "64", "--batches", "16", "--out", str(tmp_path)]
    sections = ["--section", "sums", "--section", "defaults"]
    run = run_session([sys.executable, str(BENCHMARKS / "reducer_speed.py"), *sections, *tiny], timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.left_behind == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reducer_speed.json", "reducer_speed.md"]
    results = json.loads((tmp_path / "reducer_speed.json").read_text(encoding="utf-8"))
    assert list(results) == ["sums", "defaults, global batch 32"]
    sums = [one for one in results["sums"]["sums"] if one["of"] != "horovod"]
    assert [(one["bytes"], one["of"]) for one in sums] == [
        (size, of) for size in (65536, 1048576) for of in ("plain", "nodes", "flat")
    ]
    assert all(len(one["rounds"]) == 1 and one["target"] == 0.9 for one in sums)
    table = (tmp_path / "reducer_speed.md").read_text(encoding="utf-8")
    assert "\n| 64 KiB | nodes over bare | " in table
    assert "\n| defaults, global batch 32: mpi over DDP, defaults | " in table


def test_the_committed_sums_are_of_every_size_and_through_a_nodes_memory_as_fast_as_mpis_own() -> None:
    sums = json.loads(COMMITTED.read_text(encoding="utf-8"))["sums"]["sums"]
    assert {one["bytes"] for one in sums} == {2**16, 2**20, 2**24, 2**26}
    assert {one["of"] for one in sums} == {"plain", "nodes", "flat", "horovod"}
    assert all(one["target"] == 0.9 and one["reached"] for one in sums if one["of"] == "nodes")


def test_the_committed_trainings_are_of_every_size_on_both_networks_and_as_fast_as_others_do_them() -> None:
    found = json.loads(COMMITTED.read_text(encoding="utf-8"))
    contests = [f"{network}, {rows} rows a rank" for network in NETWORKS for rows in (16, 64, 250, 500)]
    for name in contests:
        held = {one["over"]: one for one in found[name]["ratios"] if one["target"] is not None}
        assert set(held) == {"DDP, tuned", "Horovod, tuned"}
        assert all(one["of"] == "mpi" and one["target"] == 1.0 for one in held.values())
        assert [one["over"] for one in held.values() if not one["reached"]] == [], name
    at_1000 = found["defaults, global batch 1000"]["ratios"]
    assert {one["over"] for one in at_1000} == {"DDP, defaults", "Horovod, defaults"}
    assert all(one["target"] == 2.0 and one["reached"] for one in at_1000)


def test_the_committed_dense_network_exposes_at_most_half_of_the_reference_and_no_more_than_ddp() -> None:
    half, no_more = json.loads(COMMITTED.read_text(encoding="utf-8"))[f"dense, {DENSE}"]["exposed"]["judged"]
    assert (half["what"], half["at_most"]) == ("mpi over plain, by the clock", 0.5)
    assert (no_more["what"], no_more["at_most"]) == ("mpi less DDP, tuned, seconds a step beyond two alone", 0.0)
    assert half["reached"]
    assert no_more["reached"]
