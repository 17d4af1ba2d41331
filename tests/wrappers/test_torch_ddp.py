"""DistributedDataParallel around a segment: the gradients and updates of one process, whatever rows a rank has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.errors import BackendError, TrainingError
from hpcnn.network import Architecture, Dense, Flatten, Native, Softmax
from hpcnn.network.native import complete_natives
from hpcnn.reducer_options import resolve_reducer
from hpcnn.wrappers.fused import fused_class
from hpcnn.wrappers.registry import open_backend
from tests.mpi.digits import write_digits
from tests.support.pool import on_ranks, results
from tests.wrappers.fused_checks import assert_one_process
from tests.wrappers.fused_on_ranks import CASES, Digits, FusedSteps, fused_steps, model_of, one_process

pytestmark = pytest.mark.needs("torch")
LIMIT = 300.0
"""Of a call; the first one imports a framework on each rank."""
TENSORS = 12
"""Kernels and biases of the six layers."""
TOO_LATE = 1.0


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_digits(tmp_path_factory.mktemp("digits")))


@pytest.fixture(scope="module")
def alone(csv: str) -> FusedSteps:
    (found,) = results(on_ranks(1, _one_process, csv, limit=LIMIT))
    return found


def _one_process(comm: Any, csv: str) -> FusedSteps:
    return one_process(csv, "torch")


def together(csv: str, ranks: int, shares: str = "uneven", count: int = 1, **options: Any) -> Sequence[FusedSteps]:
    return results(on_ranks(ranks, fused_steps, csv, "torch", shares, count, limit=LIMIT, **options))


@pytest.mark.parametrize(("shares", "count"), CASES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_gradients_and_updates_are_those_of_one_process(
    csv: str, alone: FusedSteps, ranks: int, shares: str, count: int
) -> None:
    assert_one_process(together(csv, ranks, shares, count)[0], alone)


@pytest.mark.parametrize("options", [{"bucket_cap_mb": 1}, {"find_unused_parameters": True}, {"interface": "lo"}])
def test_options_change_no_result(csv: str, alone: FusedSteps, options: dict[str, Any]) -> None:
    found = together(csv, 3, count=3, **options)[0]
    assert_one_process(found, alone)
    assert found.facts["logged"]["find_unused_parameters"] == options.get("find_unused_parameters", False)


@pytest.mark.slow
def test_a_compiled_network_adds_as_well(csv: str, alone: FusedSteps) -> None:
    assert_one_process(together(csv, 2, count=3, compile=True)[0], alone)


def test_it_is_ddp_that_adds(csv: str) -> None:
    for rank, found in enumerate(together(csv, 3)):
        assert found.facts["class"] == "torch.nn.parallel.distributed.DistributedDataParallel"
        logged = found.facts["logged"]
        assert (logged["rank"], logged["world_size"], logged["backend_name"]) == (rank, 3, "gloo")
        assert logged["num_parameter_tensors"] == TENSORS
        assert logged["num_buckets_reduced"] >= 1
        order = logged["prev_iteration_grad_ready_order_indices"].split(", ")
        assert sorted(map(int, order)) == list(range(TENSORS))  # its hooks saw each gradient come


def test_it_gives_back_what_it_holds(csv: str) -> None:
    for before, within, after in results(on_ranks(2, _threads, csv, limit=LIMIT)):
        assert within - before
        assert not after - before


def _threads(comm: Any, csv: str) -> tuple[set[str], set[str], set[str]]:
    """Threads before, within and after, by number; and the model works on alone."""
    digits, task = Digits(csv), Path("/proc/self/task")
    model, vectors = model_of("torch", digits.architecture.whole, {})
    (piece,) = digits.pieces(0, slice(None), 1)
    vectors.gradient.fill(0.0)
    model.forward_loss_backward(*piece, 31.0)
    gradient, before = vectors.gradient.copy(), set(os.listdir(task))
    fused = fused_class("torch")(model, comm, resolve_reducer("native", {}))
    fused.gradient([piece], 31.0)
    within = set(os.listdir(task))
    fused.close()
    after = set(os.listdir(task))
    vectors.gradient.fill(0.0)
    model.forward_loss_backward(*piece, 31.0)
    assert np.array_equal(vectors.gradient, gradient)
    return before, within, after


def test_a_rank_that_does_not_come_is_told_of_in_one_line(csv: str) -> None:
    late, there = on_ranks(2, _wait_for_rank_0, csv, limit=LIMIT)
    assert late is None
    assert isinstance(there, TrainingError)
    assert str(there).startswith("torch.nn.parallel.DistributedDataParallel ")
    assert "another rank: where each rank is stands in ranks/rN.json" in str(there)


def _wait_for_rank_0(comm: Any, csv: str) -> None:
    digits = Digits(csv)
    model, _ = model_of("torch", digits.architecture.whole, {})
    fused = fused_class("torch")(model, comm, resolve_reducer("native", {"timeout_seconds": TOO_LATE}))
    try:
        fused.gradient(digits.pieces(0, slice(0, 3), 1), 31.0)
        if comm.rank == 1:
            fused.gradient(digits.pieces(0, slice(0, 3), 1), 31.0)
    finally:
        comm.Barrier()  # rank 0 is there, and late
        fused.close()


def test_a_weight_without_a_part_in_the_loss_is_refused_and_then_looked_for(csv: str) -> None:
    for error in on_ranks(2, _leave_a_weight, csv, False, limit=LIMIT):
        assert isinstance(error, BackendError)
        assert "find_unused_parameters=true" in str(error)
    first, second = results(on_ranks(2, _leave_a_weight, csv, True, limit=LIMIT))
    assert np.array_equal(first, second)
    assert np.abs(first).max() > 0


def _leave_a_weight(comm: Any, csv: str, look: bool) -> Any:
    layer = Native(name="own", backend="torch", build="tests.wrappers.torch_layers:HalfUsed")
    build = open_backend("torch", {}, 1)
    layers = complete_natives((layer, Flatten(), Dense(units=10), Softmax()), (1, 28, 28), build.complete)
    network = Architecture("half", (1, 28, 28), layers)
    model, vectors = model_of("torch", network.whole, {})
    fused = fused_class("torch")(model, comm, resolve_reducer("native", {"find_unused_parameters": look}))
    (piece,) = Digits(csv).pieces(0, slice(0, 3), 1)
    try:
        fused.gradient([piece._replace(masks=())], 31.0)
        return vectors.gradient.copy()
    finally:
        fused.close()


def test_data_parallel_is_refused_with_the_reason(csv: str) -> None:
    for error in on_ranks(1, fused_steps, csv, "torch", "uneven", 1, devices=4, limit=LIMIT):
        assert isinstance(error, BackendError)
        assert "torch.nn.DataParallel" in str(error)
        assert "start 4 ranks instead" in str(error)
