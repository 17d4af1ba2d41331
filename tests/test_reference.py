"""The committed reference results are whole, have jobs/reference.sh's settings, and show what the README says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hpcnn.studies.reading import read_run
from tests.support.mpi import REPOSITORY

REFERENCE = REPOSITORY / "results" / "reference"
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((REFERENCE / name / "run.json").read_text(encoding="utf-8"))
    return found


def test_ten_epochs_of_adam_reach_97_percent_on_the_test_rows_in_the_mean_of_three_seeds() -> None:
    runs = [manifest(f"accuracy-seed-{seed}") for seed in (1, 2, 3)]
    for seed, run in enumerate(runs, start=1):
        config = run["config"]
        assert run["state"] == "completed"
        assert (config["seed"], config["optimizer"], config["learning_rate"]) == (seed, "adam", 1e-3)
        assert (config["global_batch"], config["epochs"], run["epochs"]) == (50, 10, 10)
        assert (run["training_rows"], run["test"]["rows"]) == (6000, 1000)
        predicted = [line.split(",")[1] for line in lines(REFERENCE / run["run"] / "predictions.csv")[1:]]
        labels = [line.rpartition(",")[2] for line in lines(REPOSITORY / "data" / "test.csv")[1:]]
        right = sum(one == other for one, other in zip(predicted, labels, strict=True))
        assert run["test"]["accuracy"] == pytest.approx(right / 1000)
    assert sum(run["test"]["accuracy"] for run in runs) / 3 >= 0.97


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_four_ranks_and_one_process_are_whole_runs_with_a_verdict() -> None:
    for name, ranks in (("four-ranks", 4), ("one-process", 1)):
        run = read_run(REFERENCE / name)
        assert run.ranks == ranks
        assert run.config["epochs"] == 3
    verdict = json.loads((REFERENCE / "verdict.json").read_text(encoding="utf-8"))
    assert '"float noise"' in json.dumps(verdict)


def test_the_readmes_layer_table_is_that_of_the_reference_run() -> None:
    table = lines(REFERENCE / "one-process" / "layers.csv")[1:]
    for row in table:
        layer, parameters, gradient_bytes, flops, forward, backward = row.split(",")
        shown = (
            f"| {layer} | {int(parameters):,} | {int(gradient_bytes):,} | {int(flops) / 1e6:.3f} | "
            f"{float(forward) * 1e6:.2f} | {float(backward) * 1e6:.2f} |"
        )
        assert shown in README


def test_the_readme_shows_the_reference_picture() -> None:
    assert "results/reference/first_run.png" in README
    assert (REFERENCE / "first_run.png").read_bytes().startswith(b"\x89PNG")


def test_the_readmes_speed_table_is_that_of_the_benchmark() -> None:
    rows = [line for line in lines(REPOSITORY / "results" / "benchmarks" / "torch_speed.md") if line.startswith("|")]
    assert len(rows) > 10
    assert [row for row in rows if row not in README.splitlines()] == []


def test_the_benchmark_reached_what_it_is_held_to() -> None:
    found = json.loads((REPOSITORY / "results" / "benchmarks" / "torch_speed.json").read_text(encoding="utf-8"))
    assert '"reached": false' not in json.dumps(found)


def test_the_readmes_matrices_are_those_of_the_agreement() -> None:
    for network in ("cnn2d_3layer_fullconnected_3layer", "cnn2d_2layer_fullconnected_2layer"):
        text = (REPOSITORY / "results" / "agreement" / f"{network}.txt").read_text(encoding="utf-8")
        matrix = text[text.index("agreement of each pair") :].rstrip()
        assert f"```\n{matrix}\n```" in README


@pytest.mark.parametrize(
    ("title", "names", "least"),
    [
        ("### The backends side by side", ["backend_speed", "theano_operations"], 31),
        ("### Two stages beside PyTorch's pipelining", ["pipeline_speed"], 5),
        ("### Training beside Horovod and DistributedDataParallel", ["reducer_speed"], 30),
        ("### Sums alone, and what rounding costs", ["reducer_speed", "wire_accuracy"], 18),
    ],
)
def test_the_readmes_tables_are_those_of_the_benchmarks(title: str, names: list[str], least: int) -> None:
    text = re.split(r"^##+ ", README[README.index(title) + len(title) :], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line for line in text.splitlines() if re.match(r"\|.* \d", line)]
    assert len(rows) > least
    measured = [line for name in names for line in lines(REPOSITORY / "results" / "benchmarks" / f"{name}.md")]
    assert set(rows) <= set(measured)
