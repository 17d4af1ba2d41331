from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from hpcnn.config import FAULTS, RunConfig
from hpcnn.data.dataset import load_dataset
from hpcnn.data.normalise import Normalisation, no_normalisation
from hpcnn.errors import ConfigError, LaunchError
from hpcnn.network.architecture import Architecture
from hpcnn.network.layers import Dense, Flatten, Softmax
from hpcnn.network.zoo import find_network
from hpcnn.parallel.inject import (
    AMONG_RANKS,
    check_dropout,
    check_fault,
    injected_divisor,
    injected_epoch,
    injected_masks,
    injected_normalisation,
    injected_rate,
    injected_rows,
    lets_drift,
    slow_factor,
    slowed,
)
from hpcnn.parallel.parts import global_rows
from hpcnn.training.learning_rate import learning_rate
from tests.parallel.recorder import batch_of
from tests.support.mpi import REPOSITORY
from tests.support.pool import on_ranks, results

BATCH = batch_of(3, global_row_count=20)
DIGITS = str(REPOSITORY / "data" / "test.csv")
SETTINGS: dict[str, Any] = {"base_batch": 10}


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_a_fault_is_made_at_its_own_place_and_nowhere_else(fault: str | None) -> None:
    config = RunConfig(inject=fault, **SETTINGS)
    masks, normalisation, dataset = [np.zeros((2, 3), np.float32)], no_normalisation(1), load_dataset(DIGITS)
    changed = {
        "divisor": injected_divisor(fault, 4) is not global_rows,
        "rate": injected_rate(config) is not config,
        "labels": fault != "same-rows" and injected_rows(fault, None, dataset, range(3)) != (dataset, range(3)),
        "epoch": injected_epoch(fault, 5) != 5,
        "masks": injected_masks(fault, masks) is not masks,
        "normalisation": injected_normalisation(fault, normalisation) is not normalisation,
        "equal replicas": lets_drift(fault),
    }
    places = {
        "sum-without-mean": {"divisor"}, "mean-twice": {"divisor"}, "rate-not-scaled": {"rate"},
        "drifting-ranks": {"divisor", "equal replicas"}, "same-shuffle": {"epoch"}, "shifted-labels": {"labels"},
        "other-dropout": {"masks"}, "other-normalisation": {"normalisation"},
    }  # fmt: skip
    assert {place for place, is_changed in changed.items() if is_changed} == places.get(fault or "", set())


def test_each_fault_of_the_mean_is_what_its_name_says() -> None:
    assert injected_divisor("sum-without-mean", 4)(BATCH) == 3.0  # own rows: a mean on each rank, and then a sum
    assert injected_divisor("mean-twice", 4)(BATCH) == 80.0  # the global batch, and the ranks once more
    assert global_rows(BATCH) == 20.0


def test_the_rate_stays_at_what_it_is_for_the_base_batch() -> None:
    config = RunConfig(inject="rate-not-scaled", learning_rate=0.01, base_batch=10)
    assert learning_rate(config, 5).peak == pytest.approx(0.05)
    assert learning_rate(injected_rate(config), 5).peak == 0.01


def test_labels_are_those_of_the_row_after() -> None:
    dataset = load_dataset(DIGITS)
    shifted, shards = injected_rows("shifted-labels", None, dataset, range(3))
    assert dataset.labels is not None
    assert shifted.labels is not None
    assert shifted.labels[:-1].tolist() == dataset.labels[1:].tolist()
    assert (shifted.features is dataset.features, shards) == (True, range(3))


def rows_of_a_rank(comm: Any) -> tuple[int, range, range]:
    dataset = load_dataset(DIGITS, comm=comm)
    handed, shards = injected_rows("same-rows", comm, dataset, dataset.shards)
    return handed.first_row, shards, dataset.shards


def test_all_ranks_get_the_rows_of_the_first() -> None:
    found = results(on_ranks(3, rows_of_a_rank))
    assert [(first, shards) for first, shards, _ in found] == [(0, found[0][2])] * 3
    assert found[1][2].start > 0


def test_dropout_drops_nothing_and_rows_are_scaled_a_little_less() -> None:
    (mask,) = injected_masks("other-dropout", [np.zeros((2, 3), np.float32)])
    assert mask.tolist() == [[1.0] * 3] * 2
    scale = np.array([0.5], np.float32)
    found = injected_normalisation("other-normalisation", Normalisation(np.zeros(1, np.float32), scale))
    assert found.scale[0] == pytest.approx(0.5 * 255 / 256)
    assert found.scale.dtype == np.float32


@pytest.mark.parametrize("fault", AMONG_RANKS)
def test_a_fault_that_one_process_cannot_have_is_refused(fault: str) -> None:
    with pytest.raises(LaunchError, match=f"--inject {fault} does nothing in one process: start at least two ranks"):
        check_fault(RunConfig(inject=fault), 1)
    check_fault(RunConfig(inject=fault), 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inject": "rate-not-scaled"}, "does nothing where the rate is not scaled: give a --base-batch other than 50"),
        ({"inject": "rate-not-scaled", "base_batch": 50}, "give a --base-batch other than 50"),
        ({"inject": "same-shuffle", "epochs": 1}, "does nothing in 1 epochs: give at least --epochs 2"),
        ({"inject": "drifting-ranks", "reducer": "native"}, "leave --reducer native out"),
        ({"inject": "rank-left-out", "reducer": "native"}, "cannot reach into the framework's own sum"),
    ],
)
def test_a_fault_that_would_change_nothing_or_cannot_be_made_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        check_fault(RunConfig(**settings), 2)
    assert str(error.value).startswith(f"--inject {settings['inject']} ")


def test_another_dropout_needs_one() -> None:
    without = Architecture("plain", (1, 28, 28), (Flatten(), Dense(units=10), Softmax()))
    check_dropout("other-dropout", find_network("cnn2d_3layer_fullconnected_3layer").build((1, 28, 28), 10))
    check_dropout("same-rows", without)
    with pytest.raises(ConfigError, match="--inject other-dropout does nothing: plain has no dropout; choose another"):
        check_dropout("other-dropout", without)


def test_a_fault_is_unknown_to_the_settings_where_none_is_called_so() -> None:
    with pytest.raises(ConfigError, match="--inject 'mean' is unknown: choose from sum-without-mean, mean-twice"):
        RunConfig(inject="mean")


def test_one_rank_is_slow_by_the_factor_that_was_asked_for() -> None:
    config = RunConfig(slow="1:2.5")
    assert [slow_factor(config, rank, 3) for rank in range(3)] == [1.0, 2.5, 1.0]
    assert slow_factor(RunConfig(), 1, 3) == 1.0


def test_a_slow_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(LaunchError, match="names rank 3, but ranks 0 to 2 run: name one of those, or start more"):
        slow_factor(RunConfig(slow="3:2"), 0, 3)


def test_a_slowed_call_takes_at_least_so_many_times_as_long_as_it_took_itself() -> None:
    took = []

    def call(seconds: float) -> None:
        began = time.monotonic()
        time.sleep(seconds)
        took.append(time.monotonic() - began)

    assert slowed(call, 1.0) is call
    began = time.monotonic()
    slowed(call, 4.0)(0.01)
    assert time.monotonic() - began >= 4.0 * took[0]
