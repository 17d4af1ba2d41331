"""The rate grows with the batch, warms up, decays, and never knows how many ranks there are."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.config import RunConfig
from hpcnn.training.learning_rate import learning_rate, rate_line, rate_warning


def rates(steps_per_epoch: int = 10, steps: int = 40, **changes: Any) -> list[float]:
    schedule = learning_rate(RunConfig(**changes), steps_per_epoch)
    return [schedule.at(step) for step in range(steps)]


def test_without_a_base_batch_the_rate_is_what_was_given_at_any_batch() -> None:
    assert set(rates(learning_rate=0.3, global_batch=1)) == {0.3}
    assert set(rates(learning_rate=0.3, global_batch=4096)) == {0.3}


def test_the_rate_grows_and_shrinks_with_the_batch_over_the_base_batch() -> None:
    assert set(rates(learning_rate=0.25, global_batch=256, base_batch=64)) == {1.0}
    assert set(rates(learning_rate=0.25, global_batch=16, base_batch=64)) == {0.0625}
    assert set(rates(learning_rate=0.25, global_batch=64, base_batch=64)) == {0.25}


def test_warm_up_rises_in_equal_steps_from_the_rate_of_the_base_batch_to_the_scaled_one() -> None:
    found = rates(learning_rate=0.25, global_batch=256, base_batch=64, warmup_epochs=0.5)
    assert found[:7] == pytest.approx([0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.0])
    assert set(found[5:]) == {1.0}


def test_warm_up_of_a_rate_that_the_batch_does_not_raise_rises_from_its_first_equal_part() -> None:
    assert rates(learning_rate=1.0, warmup_epochs=0.4)[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])
    shrunk = rates(learning_rate=4.0, global_batch=16, base_batch=64, warmup_epochs=0.4)
    assert shrunk[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])


def test_decay_divides_by_one_and_decay_times_the_step_since_the_start_of_training() -> None:
    found = rates(learning_rate=0.05, decay=0.5)
    assert found == pytest.approx([0.05 / (1 + 0.5 * step) for step in range(40)])
    warmed = rates(learning_rate=0.05, decay=0.5, warmup_epochs=1)
    assert warmed[10:] == found[10:]
    assert warmed[5] == pytest.approx(found[5] * 6 / 11)


@given(
    rate=st.floats(1e-6, 10),
    batch=st.integers(1, 10**6),
    base=st.none() | st.integers(1, 10**6),
    warmup=st.floats(0, 3),
    decay=st.floats(0, 1),
    steps_per_epoch=st.integers(1, 30),
)
def test_the_rate_stays_positive_and_below_its_peak(
    rate: float, batch: int, base: int | None, warmup: float, decay: float, steps_per_epoch: int
) -> None:
    config = RunConfig(
        learning_rate=rate, global_batch=batch, base_batch=base, warmup_epochs=warmup, decay=decay,
    )  # fmt: skip
    schedule = learning_rate(config, steps_per_epoch)
    found = [schedule.at(step) for step in range(100)]
    assert all(0 < value <= schedule.peak * (1 + 1e-12) for value in found)
    rising = itertools.takewhile(lambda step: step < warmup * steps_per_epoch, range(100))
    if decay == 0:
        assert all(found[step] <= found[step + 1] * (1 + 1e-12) for step in list(rising)[:-1])


LAYOUTS = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(["single", "data"]),
        "grid": st.none() | st.integers(1, 512).map(lambda ranks: f"dp={ranks}"),
        "micro_batches": st.integers(1, 64),
        "logical_shards": st.none() | st.integers(1, 64),
        "threads": st.none() | st.integers(1, 64),
    }
)
SCHEDULES = st.fixed_dictionaries(
    {
        "learning_rate": st.floats(1e-6, 10),
        "global_batch": st.integers(1, 5000),
        "base_batch": st.none() | st.integers(1, 5000),
        "warmup_epochs": st.floats(0, 3),
        "decay": st.floats(0, 1),
    }
)


@given(schedule=SCHEDULES, layouts=st.tuples(LAYOUTS, LAYOUTS), steps_per_epoch=st.integers(1, 100))
def test_the_rate_never_depends_on_how_ranks_are_laid_out(
    schedule: dict[str, Any], layouts: tuple[dict[str, Any], dict[str, Any]], steps_per_epoch: int
) -> None:
    one, other = (rates(steps_per_epoch, **schedule, **layout) for layout in layouts)
    assert one == other


def test_a_start_says_where_the_rate_comes_from() -> None:
    def line(**changes: Any) -> str:
        config = RunConfig(learning_rate=0.1, **changes)
        return rate_line(config, learning_rate(config, 10))

    assert line(global_batch=50) == "learning rate 0.1 at batch 50, not scaled"
    assert line(global_batch=200, base_batch=50) == "learning rate 0.4 = 0.1 x batch 200 / base batch 50"
    assert line(global_batch=50, warmup_epochs=2).endswith("not scaled, warm-up over 20 steps")


@pytest.mark.parametrize(
    ("changes", "documented", "warns"),
    [
        ({"global_batch": 51}, {"global_batch": 50}, True),
        ({"global_batch": 50}, {"global_batch": 50}, False),
        ({"global_batch": 8}, {"global_batch": 50}, False),
        ({"global_batch": 500, "base_batch": 50}, {"global_batch": 50}, False),
        ({"global_batch": 500}, {}, False),
    ],
)
def test_a_batch_that_grew_while_the_rate_did_not_is_warned_of(
    changes: dict[str, Any], documented: dict[str, Any], warns: bool
) -> None:
    warning = rate_warning(RunConfig(**changes), documented)
    assert bool(warning) == warns
    if warns:
        assert "global batch 51" in warning
        assert "--base-batch 50" in warning
