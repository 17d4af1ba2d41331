"""hpcnn's pipeline against torch.distributed.pipelining, on the same batches, weights and dropout masks.

The plain script imports nothing of ours: its stages, schedules and messages are PyTorch's own, over gloo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.parity.plain_scripts import (
    EPOCHS,
    LOSS_TOLERANCE,
    SETTINGS,
    Problem,
    Trained,
    assert_same_first_step,
    assert_same_weights,
    hpcnn_training,
    plain_training,
    problem,
)

ROWS, BATCH, MICRO_BATCHES = 108, 36, 4
"""Multiples of each other: buffers of pipelining have one size."""
SCHEDULES = ("gpipe", "1f1b")
CUT, FIRST_LAYER = "5", "conv3"
"""The same place in the plain script's list and in ours, as the benchmark has it."""


@dataclass(frozen=True)
class Programs:
    """The same training by name."""

    initial: dict[str, Any]
    trained: dict[str, Trained]


def piped(given: Problem, schedule: str) -> Trained:
    both = ("--schedule", schedule, "--micro-batches", str(MICRO_BATCHES))
    return hpcnn_training(given, 2, "--strategy", "pipeline", "--stages", FIRST_LAYER, *both)


def plain_piped(given: Problem, schedule: str) -> Trained:
    both = ("--schedule", schedule, "--micro-batches", str(MICRO_BATCHES))
    more = ("--cut", CUT, "--batch", str(BATCH), *both)
    return plain_training(given, "torch_pipeline_script.py", ranks=2, more=more)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    given = problem(SETTINGS["3layer-adam"], tmp_path_factory.mktemp("piped"), ROWS, BATCH)
    trained = {"one process": plain_training(given, "torch_script.py")}
    for schedule in SCHEDULES:
        trained[f"hpcnn, {schedule}"] = piped(given, schedule)
        trained[f"pipelining, {schedule}"] = plain_piped(given, schedule)
    return Programs(given.initial, trained)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", [f"{who}, {schedule}" for schedule in SCHEDULES for who in ("hpcnn", "pipelining")])
def test_two_stages_train_as_one_process_does(programs: Programs, name: str) -> None:
    found, expected = programs.trained[name], programs.trained["one process"]
    assert_same_first_step(found, expected)
    assert len(found.losses) == EPOCHS * ROWS // BATCH
    assert found.losses == pytest.approx(expected.losses, rel=LOSS_TOLERANCE)
    assert_same_weights(found, expected, programs.initial)
