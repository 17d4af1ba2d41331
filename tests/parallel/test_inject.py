from __future__ import annotations

import pytest

from hpcnn.config import FAULTS
from hpcnn.errors import ConfigError, LaunchError
from hpcnn.parallel.executor import global_rows
from hpcnn.parallel.inject import injected_divisor
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
