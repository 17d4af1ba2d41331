"""A training that went astray fails in every backend, whatever its framework makes of nan, and says one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcnn.records.state import read_state
from tests.training.worlds import World
from tests.wrappers.backends import EVERY_BACKEND


@EVERY_BACKEND
@pytest.mark.parametrize("rate", ["1e30", "1e10"])
@pytest.mark.parametrize("ended", ["at once, tested", "at once, validated", "an epoch on, neither"])
@pytest.mark.parametrize("network", ["cnn2d_2layer_fullconnected_2layer", "cnn2d_3layer_fullconnected_3layer"])
def test_a_training_that_diverged_is_no_completed_run(
    world: World, files: Path, tmp_path: Path, backend: str, network: str, ended: str, rate: str
) -> None:
    flags = {
        "at once, tested": ("--validation-fraction", 0, "--max-steps", 1, "--test", files / "test.csv"),
        "at once, validated": ("--validation-fraction", 0.3, "--max-steps", 1),
        "an epoch on, neither": ("--validation-fraction", 0, "--epochs", 1),
    }[ended]
    outcome = world.hpcnn(
        "train", "--train", files / "train.csv", "--network", network, "--optimizer", "sgd", "--learning-rate", rate,
        "--global-batch", 30, "--threads", 1, "--backend", backend, "--out", tmp_path, "--run-id", "run", *flags,
    )  # fmt: skip
    said = [line for line in outcome.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert outcome.status == 1, outcome.stdout
    assert len(said) == 1
    assert "--learning-rate" in said[0]
    assert read_state(tmp_path / "run").state == "failed"
