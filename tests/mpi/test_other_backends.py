"""Rule 3 with the other backends: 1 to 4 ranks train the same network, replicas and repeats equal to the bit.

Fewer cases than test_training.py has for torch: those in which a backend has a say."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hpcnn.network.architecture import Architecture
from hpcnn.network.initial import initial_weights
from tests.mpi.digits import BATCH
from tests.mpi.tolerances import STEP_0, STEP_5, assert_tensors_near
from tests.mpi.training_driver import FiveSteps, five_steps, two_runs
from tests.support.pool import on_ranks, results
from tests.training.results import curve
from tests.wrappers.backends import OTHER_BACKENDS, chosen

LIMIT = 300.0
"""Of a call; the first one imports a framework on each rank."""
CASES = ((1, 1), (1, 40), (2, 1), (2, 3), (3, 1), (3, 40), (4, 1), (4, 3))
"""Ranks and micro-batches, of which 40 are more than a rank has rows."""

pytestmark = OTHER_BACKENDS


@pytest.fixture(scope="module")
def trained(csv: Path) -> Any:
    """What each rank found; each case is computed once."""

    @cache
    def steps(backend: str, ranks: int, micro_batches: int) -> list[FiveSteps]:
        return train(backend, ranks, micro_batches, csv)

    return steps


def train(backend: str, ranks: int, micro_batches: int, csv: Path) -> list[FiveSteps]:
    settings = {**chosen(backend), "micro_batches": micro_batches, "validation_fraction": 0.0}
    return results(on_ranks(ranks, five_steps, str(csv), limit=LIMIT, **settings))


@pytest.mark.matrix  # all of it, of torch, is in test_training.py
@pytest.mark.parametrize(("ranks", "micro_batches"), CASES)
def test_step_0_and_five_updates_are_those_of_one_process(
    trained: Any, architecture: Architecture, backend: str, ranks: int, micro_batches: int
) -> None:
    (alone,), found = trained(backend, 1, 1), trained(backend, ranks, micro_batches)
    rows = [rank.rows for rank in found]
    assert [sum(step) for step in zip(*rows, strict=True)] == [BATCH] * 4 + [2]
    assert ranks < 3 or any(rank[-1] == 0 for rank in rows)
    assert ranks == 1 or any(len({rank[step] for rank in rows}) > 1 for step in range(5))  # they share unevenly
    assert_tensors_near(architecture, found[0].gradient, alone.gradient, STEP_0)
    start = initial_weights(architecture, 1)
    assert_tensors_near(architecture, found[0].weights - start, alone.weights - start, STEP_5)
    assert all(rank.replicas_equal and rank.losses == found[0].losses for rank in found)


@pytest.mark.parametrize(("ranks", "micro_batches"), [(1, 1), (2, 3), (3, 40), (4, 1)])
def test_the_same_steps_again_leave_the_same_bits(
    trained: Any, csv: Path, backend: str, ranks: int, micro_batches: int
) -> None:
    before, again = trained(backend, ranks, micro_batches)[0], train(backend, ranks, micro_batches, csv)[0]
    assert again.losses == before.losses
    assert again.gradient.tobytes() == before.gradient.tobytes()
    assert again.weights.tobytes() == before.weights.tobytes()


def test_a_run_twice_leaves_the_same_curves_and_predictions(csv: Path, backend: str, tmp_path: Path) -> None:
    results(on_ranks(3, two_runs, str(csv), str(tmp_path), **chosen(backend), limit=LIMIT))
    first, second = tmp_path / "first", tmp_path / "second"
    assert len(curve(first)) == 2 * 4
    assert curve(first) == curve(second)
    assert (first / "predictions.csv").read_text() == (second / "predictions.csv").read_text()
