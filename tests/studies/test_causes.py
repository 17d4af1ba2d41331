"""The mean that is missing or taken twice is told by name, from the first step alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.data.order import BatchOrder
from hpcnn.data.shards import default_logical_shards, replica_shards
from hpcnn.studies.causes import fault_causes
from hpcnn.studies.reading import Run
from tests.studies.made_runs import changed, curve, make_run, scaled, with_noise

ROWS = curve(1)
BASE = make_run("base", ROWS)


def run_of(factor: float, ranks: int, micro_batches: int = 1, noise: float = 0.0, **facts: Any) -> Run:
    rows = with_noise(scaled(ROWS, factor), noise)
    return make_run("run", rows, ranks=ranks, settings={"micro_batches": micro_batches}, facts=facts)


@given(st.integers(2, 16), st.floats(0, 1e-6))
def test_a_gradient_that_is_n_times_too_large_misses_its_mean(ranks: int, noise: float) -> None:
    (cause,) = fault_causes(BASE, run_of(ranks, ranks, noise=noise))
    assert cause == f"mean is missing: gradients are added across {ranks} ranks and not divided, in run"


@given(st.integers(2, 16), st.floats(0, 1e-6))
def test_a_gradient_that_is_n_times_too_small_has_it_twice(ranks: int, noise: float) -> None:
    (cause,) = fault_causes(BASE, run_of(1 / ranks, ranks, noise=noise))
    assert cause == f"mean is taken twice: gradients added across {ranks} ranks are divided once more, in run"


@pytest.mark.parametrize(
    ("factor", "start"), [(1 / 4, "mean is missing: gradients are added"), (4.0, "mean is taken twice")]
)
def test_where_the_baseline_has_the_ranks_the_fault_is_its(factor: float, start: str) -> None:
    baseline = make_run("base", ROWS, ranks=4)
    (cause,) = fault_causes(baseline, run_of(factor, 1))
    assert cause.startswith(start)
    assert cause.endswith("in base")


def test_micro_batches_are_added_too() -> None:
    (cause,) = fault_causes(BASE, run_of(3, 1, micro_batches=3))
    assert cause.startswith("mean is missing: gradients are added across 3 micro-batches")
    (cause,) = fault_causes(BASE, run_of(6, 2, micro_batches=3))
    assert cause.startswith("mean is missing: gradients are added across 2 ranks x 3 micro-batches")


def test_what_cannot_be_told_apart_is_named_together() -> None:
    causes = fault_causes(BASE, run_of(4, 4, micro_batches=4))
    assert [("ranks" in cause, "micro-batches" in cause) for cause in causes] == [(True, False), (False, True)]
    causes = fault_causes(make_run("base", ROWS, ranks=4), run_of(4, 4))
    assert [(cause[:15], cause[-7:]) for cause in causes] == [
        ("mean is missing", " in run"),
        ("mean is taken t", "in base"),
    ]


def test_the_same_fault_in_both_runs_shows_in_the_ratio_of_their_ranks() -> None:
    causes = fault_causes(make_run("base", ROWS, ranks=2), run_of(1.5, 3))
    assert causes == (
        "mean is missing: gradients are added across ranks and not divided, in both runs, of 2 and 3 ranks",
    )


def test_ranks_of_a_pipeline_add_by_replicas() -> None:
    def hybrid(factor: float, pieces: int) -> Run:
        return run_of(factor, 6, micro_batches=pieces, grid="dp=3,pp=2,tp=1")

    (cause,) = fault_causes(BASE, hybrid(3, 2))
    assert cause.startswith("mean is missing: gradients are added across 3 replicas")
    assert len(fault_causes(BASE, hybrid(3, 3))) == 2
    assert fault_causes(BASE, run_of(2, 2, grid="dp=1,pp=2,tp=1")) == ()


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-6, 1.3, 0.8, 2.0, 40.0, 0.1])
def test_another_ratio_is_no_such_fault(factor: float) -> None:
    assert fault_causes(BASE, run_of(factor, 4)) == ()


@given(st.integers(2, 16), st.floats(-0.499, 0.499))
def test_a_ratio_nearer_to_1_than_to_n_is_never_called_one(ranks: int, power: float) -> None:
    assert fault_causes(BASE, run_of(ranks**power, ranks)) == ()


def test_where_the_loss_is_another_the_gradient_proves_nothing() -> None:
    other = changed(scaled(ROWS, 4), lambda step, name, value: value * (1.3 if name == "train_loss" else 1))
    assert fault_causes(BASE, make_run("run", other, ranks=4)) == ()


def test_a_loss_that_is_added_up_with_the_same_fault_is_evidence_too() -> None:
    both = changed(scaled(ROWS, 4), lambda step, name, value: value * (4 if name == "train_loss" else 1))
    assert len(fault_causes(BASE, make_run("run", both, ranks=4))) == 1


@pytest.mark.parametrize("norm", [0.0, float("nan"), float("inf")])
def test_without_a_norm_there_is_no_ratio(norm: float) -> None:
    rows = changed(ROWS, lambda step, name, value: norm if name == "gradient_norm" else value)
    assert fault_causes(BASE, make_run("run", rows, ranks=4)) == ()
    assert fault_causes(make_run("base", rows), run_of(1, 4)) == ()
    assert fault_causes(make_run("base", []), make_run("run", [], ranks=4)) == ()


@given(
    ranks=st.integers(2, 8),
    batch=st.integers(8, 200),
    shards=st.integers(8, 64),
    alike=st.floats(0.25, 4),
    seed=st.integers(0, 2**31),
)
def test_the_mean_is_missed_though_ranks_hold_unequal_shares(
    ranks: int, batch: int, shards: int, alike: float, seed: int
) -> None:
    """A row's gradient is a common direction and a random one; the norms are of real sums over the real shares."""
    shards = min(shards, batch)
    order = BatchOrder(1000, shards, batch, 0.0, 1)
    counts = [order.count(0, replica_shards(shards, ranks, rank)) for rank in range(ranks)]
    random = np.random.default_rng(seed)
    rows = alike * np.eye(1, 300) + random.standard_normal((batch, 300)) / np.sqrt(300)
    means = [part.mean(axis=0) for part in np.split(rows, np.cumsum(counts)[:-1])]
    ratio = float(np.linalg.norm(sum(means)) / np.linalg.norm(rows.mean(axis=0)))
    settings = {"global_batch": batch}
    base = make_run("base", ROWS, settings=settings, facts={"logical_shards": shards})
    run = make_run("run", scaled(ROWS, ratio), ranks=ranks, settings=settings, facts={"logical_shards": shards})
    (cause,) = fault_causes(base, run)
    assert cause.startswith(f"mean is missing: gradients are added across {ranks} ranks")


def test_the_default_number_of_logical_shards_leaves_shares_nearly_equal() -> None:
    shards = default_logical_shards(1000, 50)
    counts = [BatchOrder(1000, shards, 50, 0.0, 1).count(0, replica_shards(shards, 4, rank)) for rank in range(4)]
    assert sorted(counts) == [12, 12, 13, 13]
