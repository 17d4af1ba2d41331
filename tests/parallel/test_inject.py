from __future__ import annotations

import time

import pytest

from hpcnn.config import FAULTS, RunConfig
from hpcnn.errors import ConfigError, LaunchError
from hpcnn.parallel.inject import injected_divisor, slow_factor, slowed
from hpcnn.parallel.parts import global_rows
from tests.parallel.recorder import batch_of

BATCH = batch_of(3, global_row_count=20)


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_without_a_fault_the_divisor_is_the_global_batch(ranks: int) -> None:
    assert injected_divisor(None, ranks) is global_rows
    assert global_rows(BATCH) == 20.0


def test_each_fault_is_what_its_name_says() -> None:
    assert injected_divisor("sum-without-mean", 4)(BATCH) == 3.0  # own rows: a mean on each rank, and then a sum
    assert injected_divisor("mean-twice", 4)(BATCH) == 80.0  # the global batch, and the ranks once more


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_one_process_cannot_have_is_refused(fault: str) -> None:
    with pytest.raises(LaunchError, match=f"--inject {fault} does nothing in one process: start at least two ranks"):
        injected_divisor(fault, 1)


def test_an_unknown_fault_lists_the_choices() -> None:
    with pytest.raises(ConfigError, match="--inject 'mean' is unknown: choose from sum-without-mean, mean-twice"):
        injected_divisor("mean", 2)


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
