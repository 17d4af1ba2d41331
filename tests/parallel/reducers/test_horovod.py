"""Horovod's reducer adds: real Horovod of each framework on real ranks, exact or within what float16 and Adasum are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.parallel.reducers.horovod_ranks import adasum, added_by, refusal, refusal_of_worlds_of_one
from tests.parallel.reducers.sums import Outcome, added, contribution, magnitude
from tests.support.horovod import NEEDS_HOROVOD
from tests.support.mpi import run_ranks
from tests.support.pool import on_ranks, results

pytestmark = NEEDS_HOROVOD

BINDINGS = ("torch", "tensorflow")
ROUNDOFF = 2.0**-24
"""Of float32; the bound of its sums: test_reducers.py."""
HALF, TINY = 2.0**-11, 2.0**-25
"""Of float16: its unit roundoff, and how far a number below its normal range may be rounded."""
SIZES = [2, 3, 17, 1000, 131_077]
LIMIT = 300.0
"""Of a call; the first one imports a framework on each rank."""


def outcomes(ranks: int, *args: Any, **options: Any) -> list[Outcome]:
    return results(on_ranks(ranks, added_by, *args, limit=LIMIT, **options))


def said(ranks: int, *args: Any, **options: Any) -> str:
    """What all ranks are told alike, in one line."""
    (words,) = set(results(on_ranks(ranks, refusal, *args, limit=LIMIT, **options)))
    assert "\n" not in words
    return str(words)


@pytest.mark.parametrize("posted", [False, True])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("backend", BINDINGS)
def test_all_ranks_get_the_same_bits_and_the_sum(backend: str, ranks: int, posted: bool) -> None:
    turns = 3
    first, *others = outcomes(ranks, backend, {}, SIZES, turns, posted)
    for other in others:
        assert [one.tobytes() for one in other.sums] == [one.tobytes() for one in first.sums]
    cases = [(turn, size) for turn in range(turns) for size in SIZES]
    for (turn, size), total in zip(cases, first.sums, strict=True):
        bound = (ranks - 1) * ROUNDOFF * magnitude(ranks, size, turn)
        assert (np.abs(total - added(ranks, size, turn)) <= bound * 1.01).all()


@pytest.mark.parametrize("backend", BINDINGS)
def test_a_rank_without_rows_adds_nothing(backend: str) -> None:
    found = outcomes(3, backend, {}, [100], 1, False, rows=[2, 3, 0])
    bound = ROUNDOFF * magnitude(2, 100)
    assert all((np.abs(one.sums[0] - added(2, 100)) <= bound * 1.01).all() for one in found)


@pytest.mark.parametrize("posted", [False, True])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("backend", BINDINGS)
def test_float16_is_off_by_its_roundings_and_statistics_are_not(backend: str, ranks: int, posted: bool) -> None:
    first, *others = outcomes(ranks, backend, {"compression": "fp16"}, [5000, 2], 1, posted)
    assert all(other.sums[0].tobytes() == first.sums[0].tobytes() for other in others)
    error = np.abs(first.sums[0] - added(ranks, 5000))
    exact = (ranks - 1) * ROUNDOFF * magnitude(ranks, 5000) * 1.01
    assert (error[-2:] <= exact[-2:]).all()
    # Each number is rounded once, then each of the ranks - 1 sums: a term meets at most `ranks` roundings to float16.
    bound = ((1 + HALF) ** ranks - 1) * magnitude(ranks, 5000) + 2 * ranks * TINY
    assert (error <= bound).all()
    assert error[:-2].max() > exact[:-2].max()  # it was rounded


@pytest.mark.parametrize("rows", [[5, 5, 5, 5], [1, 2, 3, 4], [2, 3, 1, 0]])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("backend", BINDINGS)
def test_adasum_weighs_the_ranks_own_means_and_statistics_are_added(backend: str, ranks: int, rows: list[int]) -> None:
    rows = rows[:ranks]
    size, total = 1000, sum(rows)
    first, *others = outcomes(ranks, backend, {"op": "adasum"}, [size, 20], 1, True, rows=rows)
    for other in others:
        np.testing.assert_allclose(other.sums[0], first.sums[0], rtol=0, atol=0)
    for place, count in enumerate([size, 20]):
        brought = [contribution(rank, count) * (rows[rank] > 0) for rank in range(ranks)]
        means = [one[:-2] * (total / n if n else 1.0) for one, n in zip(brought, rows, strict=True)]
        expected = adasum(means)
        # Coefficients come from float64 dot products; what is scaled and added is rounded twice a level, to float32.
        bound = 8 * ROUNDOFF * sum(np.abs(one.astype(np.float64)) for one in means)
        assert (np.abs(first.sums[place][:-2] - expected) <= bound).all()
        statistics = sum(one[-2:].astype(np.float64) for one in brought)
        np.testing.assert_allclose(first.sums[place][-2:], statistics, rtol=0, atol=1e-5)


@pytest.mark.parametrize("backend", BINDINGS)
def test_adasum_of_float16_is_near_that_of_float32(backend: str) -> None:
    exact, half = (
        outcomes(4, backend, {"op": "adasum", "compression": compression}, [1000], 1, False)[0].sums[0]
        for compression in ("none", "fp16")
    )
    # Numbers are rounded once and after each of two levels, whose coefficients, at most 1 apiece in magnitude where
    # vectors aren't alike, are off by no more than the rounded dot products: some 8 roundings in all.
    bound = 8 * HALF * 4 * magnitude(4, 1000) + 8 * TINY
    assert (np.abs(half - exact)[:-2] <= bound[:-2]).all()
    assert half[-2:].tobytes() == exact[-2:].tobytes()
    assert half.tobytes() != exact.tobytes()


@pytest.mark.parametrize("backend", BINDINGS)
def test_each_stage_of_a_grid_is_a_process_set(backend: str) -> None:
    found = outcomes(4, backend, {}, [500], 2, False, stages=2)
    for stage in (0, 1):
        members = [stage, stage + 2]
        expected = sum(contribution(rank, 500, 1).astype(np.float64) for rank in members)
        for rank in members:
            assert found[rank].described["process_set"] == members
            np.testing.assert_allclose(found[rank].sums[1], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("backend", BINDINGS)
def test_the_timeline_holds_the_named_reductions(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    turns = 50  # Horovod's thread that writes drops what it has not come to in the end
    (first, _) = outcomes(2, backend, {"timeline": str(path), "compression": "fp16"}, [500, 20], turns, True)
    assert first.described["variables"]["HOROVOD_TIMELINE"] == str(path)
    text = path.read_text(encoding="utf-8").rstrip().rstrip(",")
    events = json.loads(text if text.endswith("]") else text + "]")
    names = {event["args"].get("name") for event in events if event.get("name") == "process_name"}
    own = {str(name).removeprefix("allreduce.") for name in names}  # as the binding to torch calls them
    assert own >= {f"{what}.segment{segment}" for what in ("gradient", "statistics") for segment in (0, 1)}
    assert "MPI_ALLREDUCE" in {event.get("name") for event in events}
    assert {event["args"].get("dtype") for event in events if "args" in event} >= {"float16", "float32"}


def test_horovod_is_told_its_cycle_time_and_says_what_it_is() -> None:
    described = outcomes(2, "torch", {"cycle_time_ms": 0.5}, [10], 1, False)[0].described
    assert described["variables"]["HOROVOD_CYCLE_TIME"] == "0.5"
    assert described["size"] == 2
    assert described["process_set"] == "all"
    assert described["version"].startswith("horovod 0.28.1 for torch ")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "keras_torch", "tensorflow", "keras_tensorflow"])
def test_one_framework_alone_is_imported(backend: str, tmp_path: Path) -> None:
    out = tmp_path / "loaded"
    run = run_ranks(2, ["-m", "tests.parallel.reducers.horovod_ranks", str(out), backend], timeout=LIMIT)
    assert run.returncode == 0, run.stderr
    assert out.read_text(encoding="utf-8") == backend.removeprefix("keras_")


class TestRefusals:
    """Said alike on all ranks, and so once, by rank 0."""

    def test_a_backend_without_a_binding(self) -> None:
        words = said(2, "keras_jax")
        assert words.startswith(
            "--reducer horovod: Horovod has no binding to keras_jax: it has one to torch, keras_torch"
        )

    def test_adasum_on_three_ranks(self) -> None:
        assert "op=adasum works on 2, 4, 8 ... ranks, not on 3" in said(3, "torch", {"op": "adasum"})

    def test_adasum_on_stages(self) -> None:
        assert "op=adasum works over all ranks alone" in said(4, "torch", {"op": "adasum"}, stages=2)

    @pytest.mark.parametrize("name", ["HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"])
    def test_gloo_which_without_a_server_makes_each_rank_a_world(self, name: str) -> None:
        words = said(2, "torch", {}, {name: "gloo"})
        assert words == f"--reducer horovod adds over MPI, and {name}=gloo says otherwise: unset {name}"

    def test_a_timeline_that_cannot_be_written(self, tmp_path: Path) -> None:
        words = said(2, "torch", {"timeline": str(tmp_path / "no folder" / "timeline.json")})
        assert words.endswith("No such file or directory: give a file that rank 0 can write")

    def test_a_horovod_that_sees_other_ranks(self) -> None:
        for words in results(on_ranks(2, refusal_of_worlds_of_one, limit=LIMIT)):
            assert words.startswith("--reducer horovod: Horovod sees 1 ranks, MPI 2: start them by the mpirun of ")
