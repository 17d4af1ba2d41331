"""A learning rate that does not grow with the batch is told by the rates themselves, or by two runs' batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hpcnn.config import RunConfig
from hpcnn.studies.compare import compare
from hpcnn.studies.rates import rate_causes
from hpcnn.studies.reading import Run
from hpcnn.training.learning_rate import learning_rate
from tests.studies.made_runs import STEPS, curve, make_run

SCALED = {"base_batch": 25, "learning_rate": 0.01}
WORDS = (
    "learning rate is not scaled with the batch: it is 0.01 in step 35, where batch 50 over base batch 25 makes it 0.02"
)


def run_of(settings: Mapping[str, Any], *, without: bool = False, name: str = "run", factor: float = 1.0) -> Run:
    """At the rates that the settings give, or give `without` their base batch, times `factor`."""
    config = RunConfig(global_batch=50, **{**settings, **({"base_batch": None} if without else {})})
    rate = learning_rate(config, STEPS)
    rows = [replace(row, learning_rate=rate.at(row.step) * factor) for row in curve()]
    return make_run(name, rows, settings=settings)


@pytest.mark.parametrize("others", [{}, {"warmup_epochs": 2.0}, {"warmup_epochs": 30.0}, {"decay": 0.01}])
def test_rates_of_the_settings_without_the_base_batch_are_not_scaled(others: dict[str, Any]) -> None:
    settings = {**SCALED, **others}
    verdict = compare(run_of(settings, name="base"), run_of(settings, without=True))
    (cause,) = verdict.causes
    assert verdict.verdict == "different"
    assert cause.startswith("learning rate is not scaled with the batch: it is ")
    assert cause.endswith(", in run")
    assert "learning_rate is" in verdict.reasons[0]
    assert compare(run_of(settings, name="base"), run_of(settings)).verdict == "same"


def test_the_words_have_both_rates() -> None:
    assert compare(run_of(SCALED, name="base"), run_of(SCALED, without=True)).causes == (f"{WORDS}, in run",)
    assert compare(run_of(SCALED, without=True, name="base"), run_of(SCALED)).causes == (f"{WORDS}, in base",)


@pytest.mark.parametrize("factor", [2.0, 0.5, 1.001])
def test_another_rate_is_different_without_that_name(factor: float) -> None:
    settings = {"base_batch": 10, "learning_rate": 0.01}
    verdict = compare(run_of(settings, name="base"), run_of(settings, factor=factor))
    assert (verdict.verdict, verdict.causes) == ("different", ())


@pytest.mark.parametrize("base_batch", [None, 50])
def test_where_nothing_is_to_be_scaled_nothing_is_missed(base_batch: int | None) -> None:
    assert rate_causes(run_of({"base_batch": base_batch, "learning_rate": 0.01}, factor=0.5)) == ()
    assert rate_causes(make_run("none", [], settings=SCALED)) == ()


def test_a_larger_batch_at_the_same_rate_is_named_beside_the_settings_that_differ() -> None:
    settings = {"global_batch": 200}
    verdict = compare(make_run("base", curve()), make_run("run", curve(), settings=settings))
    (cause,) = verdict.causes
    assert cause.startswith("learning rate is not scaled with the batch: the batch is 4 times the baseline's")
    assert "--global-batch is 50 in the baseline and 200 in the run" in "\n".join(verdict.reasons)
    grown = [replace(row, learning_rate=4 * row.learning_rate) for row in curve()]
    assert compare(make_run("base", curve()), make_run("run", grown, settings=settings)).causes == ()
