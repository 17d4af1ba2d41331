"""The committed evidence that backends agree is what its script makes: the smallest is made again here and compared.

Another machine rounds otherwise, and rounding grows from step to step, so figures are compared as the same training's:
the first step to float32's noise (the derivation stands in tests/mpi/tolerances.py), a whole epoch to the 1 % by which
the project says that backends agree.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.env.classic import require_classic
from tests.mpi.tolerances import STEP_0
from tests.support.mpi import REPOSITORY, run_session

COMMITTED = REPOSITORY / "results" / "agreement"
SMALLEST = "small_network"
NETWORKS = (SMALLEST, "cnn2d_2layer_fullconnected_2layer", "cnn2d_3layer_fullconnected_3layer")
BACKENDS = (
    "torch",
    "torch_in_8_micro_batches",
    "tensorflow",
    "keras_tensorflow",
    "keras_torch",
    "keras_jax",
    "keras_theano",
    "lasagne",
    "caffe",
)


@pytest.fixture
def classic() -> None:
    require_classic()


def losses(folder: Path, name: str) -> dict[str, Any]:
    with open(folder / f"{name}.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return {
        column: np.array([float(row[column]) for row in rows]) for column in ("samples", "train_loss", "gradient_norm")
    }


def epoch_loss(found: dict[str, Any]) -> float:
    return float(np.average(found["train_loss"], weights=np.diff(found["samples"], prepend=0)))


@pytest.mark.parametrize("network", NETWORKS)
def test_every_run_and_comparison_is_there_with_its_command(network: str) -> None:
    for backend in BACKENDS:
        facts = json.loads((COMMITTED / f"{network}_{backend}.json").read_text(encoding="utf-8"))
        assert facts["state"] == "completed"
        assert facts["run"] == f"{network}_{backend}"
        assert "--backend" in facts["command"]
        assert len(losses(COMMITTED, f"{network}_{backend}")["train_loss"]) == facts["steps"]
    document = json.loads((COMMITTED / f"{network}.json").read_text(encoding="utf-8"))
    assert [one["verdict"] for one in document["comparisons"]] == ["float noise"] * 8
    assert len(document["pairs"]) == 36
    if network != "cnn2d_3layer_fullconnected_3layer":  # whose ten epochs are 50 large steps, in which rounding grows
        assert all(pair["predictions"] >= 0.99 and pair["loss"] <= 0.01 for pair in document["pairs"])


@pytest.mark.slow
@pytest.mark.usefixtures("classic")
def test_the_smallest_is_made_again_as_it_is_committed(tmp_path: Path) -> None:
    run = run_session(["bash", "jobs/agreement.sh", str(tmp_path), SMALLEST], timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    names = {path.name for path in COMMITTED.iterdir() if path.name.startswith(SMALLEST)}
    assert {path.name for path in tmp_path.iterdir()} == names
    for backend in BACKENDS:
        old, new = (losses(folder, f"{SMALLEST}_{backend}") for folder in (COMMITTED, tmp_path))
        assert np.array_equal(old["samples"], new["samples"])
        for column in ("train_loss", "gradient_norm"):
            assert abs(new[column][0] - old[column][0]) <= STEP_0 * old[column][0]
        assert abs(epoch_loss(new) - epoch_loss(old)) <= 0.01 * epoch_loss(old)
    text = (tmp_path / f"{SMALLEST}.txt").read_text(encoding="utf-8")
    assert "agreement of each pair" in text
    assert str(tmp_path) not in text
