"""Ranks that drift apart, and one that is left out of the sum, told from what replicas recorded of real sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.records.evidence import SeenReplica
from hpcnn.studies.sums import sum_causes
from tests.studies.made_runs import curve, make_run

CURVE = curve(2)
ROUNDED = {"reducer": {"name": "mpi", "options": {"wire": "float16"}}}


def gradients(ranks: int, seed: int, alike: float = 1.0, size: int = 400) -> list[Any]:
    """A common direction and a random one each, float32."""
    random = np.random.default_rng(seed)
    return [
        (alike * np.eye(1, size)[0] + random.standard_normal(size) / np.sqrt(size)).astype(np.float32)
        for _ in range(ranks)
    ]


def recorded(own: Sequence[Any], total: Any, epoch: int = 1, stage: int = 0, stages: int = 1) -> list[SeenReplica]:
    norm = float(np.linalg.norm(total.astype(np.float64)))
    return [
        SeenReplica(
            rank=replica * stages + stage, replica=replica, stage=stage, epoch=epoch, step=0,
            gradient_norm=float(np.linalg.norm(one)), sum_norm=norm,
            share=float(np.dot(one.astype(np.float64), total)) / norm**2 if norm else None, weights="aa",
        )
        for replica, one in enumerate(own)
    ]  # fmt: skip


def causes(replicas: Sequence[SeenReplica], facts: dict[str, Any] | None = None) -> list[str]:
    return sum_causes(replace(make_run("run", CURVE, ranks=len(replicas), facts=facts), replicas=replicas))


@given(st.integers(2, 8), st.integers(0, 2**31), st.floats(0, 3))
def test_a_right_sum_has_no_cause(ranks: int, seed: int, alike: float) -> None:
    own = gradients(ranks, seed, alike)
    assert causes(recorded(own, np.sum(own, axis=0, dtype=np.float32))) == []


@given(st.integers(2, 8), st.integers(0, 2**31), st.floats(0.2, 3), st.data())
def test_a_rank_that_is_left_out_is_named(ranks: int, seed: int, alike: float, data: st.DataObject) -> None:
    left_out, own = data.draw(st.integers(0, ranks - 1)), gradients(ranks, seed, alike)
    total = np.sum([one for rank, one in enumerate(own) if rank != left_out], axis=0, dtype=np.float32)
    (cause,) = causes(recorded(own, total))
    words = f"rank {left_out} is left out of the sum: the gradients of the other ranks make up all of it, in run"
    assert cause == words


def test_in_a_pipeline_it_is_the_rank_of_that_stage() -> None:
    own = gradients(3, 1)
    right = recorded(own, np.sum(own, axis=0), stage=0, stages=2)
    wrong = recorded(own, own[0] + own[2], stage=1, stages=2)
    assert [cause.split(" is ")[0] for cause in causes([*right, *wrong])] == ["rank 3"]
    (cause,) = causes([*recorded(own, own[0] + own[2], stages=2), *wrong])
    assert cause.startswith("ranks 2 and 3 are left out of the sum")


def test_a_rank_without_rows_brings_nothing_and_is_not_left_out() -> None:
    own = [*gradients(2, 1), np.zeros(400, np.float32)]
    assert causes(recorded(own, own[0] + own[1])) == []


def test_a_sum_that_is_wrong_in_another_way_has_no_such_name() -> None:
    own = gradients(3, 1)
    assert causes(recorded(own, 2 * np.sum(own, axis=0))) == []
    assert causes(recorded(own, own[0])) == []


def test_a_sum_of_zeros_and_sums_that_were_not_seen_tell_nothing() -> None:
    zeros = [np.zeros(400, np.float32)] * 2
    assert causes(recorded(zeros, zeros[0])) == []
    own = gradients(2, 1)
    unseen = [
        replace(one, share=None, gradient_norm=None, sum_norm=None) for one in recorded(own, own[0])
    ]  # fmt: skip
    assert causes(unseen) == []
    assert causes([]) == []


@pytest.mark.parametrize("left_out", [False, True])
def test_numbers_that_were_rounded_on_the_way_are_still_a_sum(left_out: bool) -> None:
    own = gradients(3, 1)
    sent = [one.astype(np.float16).astype(np.float32) for one in own]
    total = np.sum(sent[: 2 if left_out else 3], axis=0, dtype=np.float32)
    assert [cause[:6] for cause in causes(recorded(own, total), ROUNDED)] == ["rank 2"] * left_out


def test_adasum_is_no_sum() -> None:
    own = gradients(2, 1)
    facts = {"reducer": {"name": "horovod", "options": {"op": "adasum"}}}
    assert causes(recorded(own, own[0]), facts) == []


@given(st.integers(2, 6), st.integers(1, 3), st.data())
def test_ranks_that_drift_apart_are_named_with_the_first_epoch_after_which_they_are(
    ranks: int, epoch: int, data: st.DataObject
) -> None:
    drifted, own = data.draw(st.integers(1, ranks - 1)), gradients(ranks, 1)
    rows = [row for at in (1, 2, 3) for row in recorded(own, np.sum(own, axis=0), epoch=at)]
    rows = [replace(row, weights="bb") if row.rank == drifted and row.epoch >= epoch else row for row in rows]
    words = f"after epoch {epoch} the weights of rank {drifted} are not those of rank 0, in run"
    assert causes(rows) == [f"ranks drift apart: {words}"]


def test_stages_hold_other_weights_and_drift_from_none() -> None:
    own = gradients(2, 1)
    total = np.sum(own, axis=0, dtype=np.float32)
    rows = [
        replace(row, weights=f"{stage}{stage}")
        for stage in (0, 1)
        for row in recorded(own, total, stage=stage, stages=2)
    ]
    assert causes(rows) == []
