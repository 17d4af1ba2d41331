"""Two runs are the same experiment when all that changes the mathematics is equal, and nothing else matters."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hpcnn.config import RunConfig
from hpcnn.studies.experiment import AS_THEY_ARE, experiment_differences
from tests.studies.made_runs import NETWORK, curve, make_run

HOW_AND_WHERE = """
backend backend_option strategy grid reducer reducer_option micro_batches schedule chunks balance stages device threads
allocator out run_id resume checkpoint_every trace progress inject slow settle_steps test
"""
RESOLVED = """
network logical_shards train label_column header input_shape classes learning_rate base_batch epochs max_steps
weight_decay_kind
"""

BASE = make_run("base", curve())


def differences(settings: dict[str, Any], facts: dict[str, Any] | None = None) -> tuple[str, ...]:
    return experiment_differences(BASE, make_run("run", curve(), settings=settings, facts=facts))


def test_every_setting_is_either_compared_or_known_not_to_matter() -> None:
    known = [*AS_THEY_ARE, *HOW_AND_WHERE.split(), *RESOLVED.split()]
    assert sorted(known) == sorted(item.name for item in dataclasses.fields(RunConfig))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seed": 2}, "--seed is 1 in the baseline and 2 in the run"),
        ({"global_batch": 100}, "--global-batch is 50 in the baseline and 100 in the run"),
        ({"optimizer": "sgd"}, "--optimizer is adam in the baseline and sgd in the run"),
        ({"learning_rate": 2e-3}, "the learning rate is 0.001 in the baseline and 0.002 in the run"),
        ({"base_batch": 25}, "the learning rate is 0.001 in the baseline and 0.002 in the run"),
        ({"decay": 1e-6}, "--decay is 0 in the baseline and 1e-06 in the run"),
        ({"warmup_epochs": 1.0}, "--warmup-epochs is 0 in the baseline and 1 in the run"),
        ({"weight_decay": 0.1}, "--weight-decay is 0 in the baseline and 0.1 in the run"),
        ({"beta1": 0.8}, "--beta1 is 0.9 in the baseline and 0.8 in the run"),
        ({"beta2": 0.99}, "--beta2 is 0.999 in the baseline and 0.99 in the run"),
        ({"normalise": "none"}, "--normalise is scale in the baseline and none in the run"),
        ({"validation_fraction": 0.1}, "--validation-fraction is 0.2 in the baseline and 0.1 in the run"),
        ({"epochs": 4}, "the number of steps is 36 in the baseline and 48 in the run"),
        ({"max_steps": 30}, "the number of steps is 36 in the baseline and 30 in the run"),
        (
            {"train": "data/other.csv"},
            "the file of training rows is train.csv in the baseline and other.csv in the run",
        ),
    ],
)
def test_a_setting_that_changes_the_mathematics_is_named_with_both_values(settings: dict[str, Any], words: str) -> None:
    assert f"not the same experiment: {words}" in differences(settings)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"logical_shards": 8}, "the number of logical shards is 50 in the baseline and 8 in the run"),
        ({"training_rows": 579}, "the number of training rows is 580 in the baseline and 579 in the run"),
        ({"network": {**NETWORK, "input_shape": [3, 32, 32]}}, "net and net take rows of another shape: [1, 28, 28]"),
        ({"network": {**NETWORK, "layers": NETWORK["layers"][:2]}}, "net and net have 3 and 2 layers"),
        (
            {"network": {**NETWORK, "name": "wide", "layers": [{"type": "flatten"}, {"type": "dense", "units": 20}]}},
            "net and wide differ from layer 2 on: {'type': 'dense', 'units': 10} in the baseline",
        ),
    ],
)
def test_what_the_settings_came_to_is_named_with_both_values(facts: dict[str, Any], words: str) -> None:
    (line,) = differences({}, facts)
    assert words in line


@pytest.mark.parametrize(
    "settings",
    [
        {"backend": "caffe"},
        {"strategy": "single"},
        {"grid": "dp=4"},
        {"micro_batches": 4},
        {"strategy": "pipeline", "schedule": "interleaved", "chunks": 3, "balance": "measured"},
        {"strategy": "hybrid", "grid": "dp=2,pp=2", "balance": "explicit", "stages": "dense1"},
        {"threads": 2},
        {"allocator": "system"},
        {"out": "elsewhere"},
        {"run_id": "mine"},
        {"resume": "results/one"},
        {"checkpoint_every": 1},
        {"trace": True},
        {"progress": False},
        {"inject": "mean-twice"},
        {"test": "another.csv"},
        {"train": "/scratch/somebody/train.csv"},
        {"network": "mine/net.toml"},
        {"label_column": "last"},
        {"header": "yes"},
        {"input_shape": "1,28,28"},
        {"classes": 10},
        {"base_batch": 50},
        {"base_batch": 500, "learning_rate": 0.01},
        {"epochs": 7, "max_steps": 36},
        {"max_steps": 1000},
        {"settle_steps": 3},
        {"logical_shards": 50},
        {"weight_decay_kind": "coupled"},
    ],
)
def test_how_and_where_a_run_was_made_is_no_difference(settings: dict[str, Any]) -> None:
    assert differences(settings) == ()


def test_the_kind_of_weight_decay_matters_once_there_is_one() -> None:
    coupled, decoupled = (
        make_run("x", curve(), settings={"weight_decay": 0.1, "weight_decay_kind": kind})
        for kind in ("coupled", "decoupled")
    )
    assert len(experiment_differences(coupled, decoupled)) == 1


def test_settings_of_one_optimizer_are_no_difference_beside_another_optimizer() -> None:
    sgd = {"optimizer": "sgd", "momentum": 0.9, "nesterov": True}
    assert len(differences(sgd)) == 1
    plain = make_run("x", curve(), settings={"optimizer": "sgd"})
    assert len(experiment_differences(plain, make_run("y", curve(), settings=sgd))) == 2


def test_all_differences_are_told() -> None:
    assert len(differences({"seed": 2, "learning_rate": 0.1, "optimizer": "sgd"}, {"logical_shards": 7})) == 4
