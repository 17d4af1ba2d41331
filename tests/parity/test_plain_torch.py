"""hpcnn against the loop that a practitioner would write in PyTorch, on the same batches, weights and dropout masks.

The plain script imports nothing of ours: its layers, its autograd, its optimizers and DistributedDataParallel are
PyTorch's own. What the two share is the file with weights, rows and masks that this test makes. PyTorch's Adam, like
ours, adds epsilon after the bias correction.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.parity.plain_scripts import (
    SETTINGS,
    Trained,
    assert_same_first_step,
    assert_same_losses,
    assert_same_weights,
    hpcnn_training,
    plain_training,
    problem,
)


@dataclass(frozen=True)
class Programs:
    """The same training four times, and the weights it started from."""

    initial: dict[str, Any]
    hpcnn: Trained
    hpcnn_on_two_ranks: Trained
    plain: Trained
    ddp_on_two_ranks: Trained


@pytest.fixture(scope="module", params=SETTINGS)
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    given = problem(SETTINGS[request.param], tmp_path_factory.mktemp("plain"))
    return Programs(
        given.initial,
        hpcnn_training(given, ranks=1),
        hpcnn_training(given, ranks=2),
        plain_training(given, "torch_script.py", ranks=1),
        plain_training(given, "torch_script.py", ranks=2),
    )


OURS = ("hpcnn", "hpcnn_on_two_ranks")
THEIRS = ("plain", "ddp_on_two_ranks")


@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.parametrize("ours", OURS)
def test_first_loss_and_gradient_norm_equal_the_plain_scripts(programs: Programs, ours: str, theirs: str) -> None:
    assert_same_first_step(getattr(programs, ours), getattr(programs, theirs))


@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.parametrize("ours", OURS)
def test_weights_after_two_epochs_equal_the_plain_scripts(programs: Programs, ours: str, theirs: str) -> None:
    assert_same_weights(getattr(programs, ours), getattr(programs, theirs), programs.initial)


@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.parametrize("ours", OURS)
def test_the_loss_of_every_step_equals_the_plain_scripts(programs: Programs, ours: str, theirs: str) -> None:
    assert_same_losses(getattr(programs, ours), getattr(programs, theirs))


@pytest.mark.needs("horovod")
def test_horovods_optimizer_trains_the_same(tmp_path: Path) -> None:
    given = problem(SETTINGS["3layer-adam"], tmp_path)
    alone = plain_training(given, "torch_script.py", ranks=1)
    together = plain_training(given, "torch_script.py", ranks=2, more=("--horovod",))
    assert_same_first_step(together, alone)
    assert_same_losses(together, alone)
    assert_same_weights(together, alone, given.initial)
