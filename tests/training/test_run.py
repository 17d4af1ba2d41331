"""What a run says at its start and leaves behind, on one rank and on several."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hpcnn.config import DEFAULT_BACKEND
from hpcnn.network.cost import layer_costs
from hpcnn.network.network_file import read_network
from hpcnn.network.zoo import networks
from hpcnn.training.checkpoint import load_checkpoint
from tests.records.flows import names_of, slices_of
from tests.support.mpi import REPOSITORY
from tests.training.results import curve, manifest, numbers, table
from tests.training.worlds import Outcome, Worlds
from tests.wrappers.backends import KERAS_BACKEND

RANKS = (1, 2, 3)
STEPS = 7
"""An epoch: 190 of 211 rows are trained on, 31 at a time."""


class Runs:
    """The same run at several numbers of ranks, each once: two epochs with everything on."""

    def __init__(self, worlds: Worlds, files: Path, out: Path) -> None:
        self.worlds, self.files, self.out = worlds, files, out
        self.outcomes: dict[int, Outcome] = {}

    def folder(self, ranks: int) -> Path:
        if ranks not in self.outcomes:
            self.outcomes[ranks] = self.worlds.of(ranks).train(
                "--train", self.files / "train.csv", "--test", self.files / "test.csv",
                "--network", self.files / "little.toml", "--epochs", 2, "--global-batch", 31, "--base-batch", 10,
                "--learning-rate", 1e-3, "--warmup-epochs", 1, "--validation-fraction", 0.1, "--trace",
                "--checkpoint-every", 1, "--seed", 3, "--out", self.out, "--run-id", f"np{ranks}",
            )  # fmt: skip
        return self.out / f"np{ranks}"

    def outcome(self, ranks: int) -> Outcome:
        self.folder(ranks)
        return self.outcomes[ranks]


@pytest.fixture(scope="module")
def runs(worlds: Worlds, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(worlds, files, tmp_path_factory.mktemp("run"))


def words_of_default() -> str:
    """Keras says what it computes with."""
    return f"keras on {KERAS_BACKEND}" if DEFAULT_BACKEND == "keras" else DEFAULT_BACKEND


@pytest.mark.parametrize("ranks", RANKS)
def test_a_start_prints_rows_format_rate_batch_and_threads_once(runs: Runs, files: Path, ranks: int) -> None:
    outcome = runs.outcome(ranks)
    lines = outcome.stdout.splitlines()
    count = "1 rank" if ranks == 1 else f"{ranks} ranks"
    label = "a header, 784 features, label last ('label')"
    assert lines[0] == f"network little, 4,186 parameters, on {words_of_default()}"
    assert lines[1] == f"strategy data, {count} x 1 thread (threads from --threads)"
    assert lines[2] == f"data {files / 'train.csv'}: 211 rows of 1x28x28, 10 classes; {label}"
    assert lines[3] == f"test {files / 'test.csv'}: 61 rows; {label}"
    rows = "190 training and 21 validation rows in 31 logical shards"
    assert lines[4] == f"{rows}, batch 31, 7 steps an epoch, seed 3"
    rate = "learning rate 0.0031 = 0.001 x batch 31 / base batch 10, warm-up over 7 steps"
    assert lines[5] == f"optimizer adam, {rate}"
    assert [out for _, out, _ in outcome.ranks[1:]] == [""] * (ranks - 1)


@pytest.mark.parametrize("ranks", RANKS)
def test_an_end_prints_epochs_seconds_of_ranks_test_figures_and_the_place(runs: Runs, ranks: int) -> None:
    lines = runs.outcome(ranks).stdout.splitlines()
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert [line.split(":")[0] for line in epochs] == ["epoch 1", "epoch 2"]
    assert all(re.search(r"loss \d+\.\d{4}, accuracy .*%, validation loss \d+\.\d{4}, accuracy", e) for e in epochs)
    assert [line.split()[1] for line in lines if line.startswith("rank ")] == [str(rank) for rank in range(ranks)]
    figures = manifest(runs.folder(ranks))["test"]
    assert lines[-2] == f"test: 61 rows, loss {figures['loss']:.4f}, accuracy {figures['accuracy']:.2%}"
    assert lines[-1] == f"results: {runs.folder(ranks)}"
    # Means over the epoch's rows, of which the last step has fewer, from what stands in loss.csv.
    rows = np.diff(numbers(runs.folder(ranks), "samples"))[-STEPS:]
    loss = np.average(numbers(runs.folder(ranks), "train_loss")[STEPS:], weights=rows)
    assert f"epoch 2: loss {loss:.4f}" in epochs[1]


@pytest.mark.parametrize("ranks", RANKS)
def test_the_learning_rate_of_every_step_is_the_same_at_any_number_of_ranks(runs: Runs, ranks: int) -> None:
    found = numbers(runs.folder(ranks), "learning_rate")
    assert found == numbers(runs.folder(1), "learning_rate")
    assert found[0] == pytest.approx(1e-3)
    assert found[STEPS:] == pytest.approx([3.1e-3] * STEPS)


@pytest.mark.parametrize("ranks", RANKS)
def test_run_json_tells_what_ran_and_on_what(runs: Runs, ranks: int) -> None:
    found = manifest(runs.folder(ranks))
    assert found["run"] == f"np{ranks}"
    assert found["state"] == "completed"
    assert found["start"] <= found["end"]
    assert found["command"][0] == "hpcnn"
    assert found["config"]["seed"] == 3
    assert found["ranks"] == ranks
    assert found["grid"] == f"dp={ranks},pp=1,tp=1"
    assert found["program"] == ("F0.0 L0.0 U0" if ranks == 1 else "F0.0 L0.0 R0 U0")
    assert (found["logical_shards"], found["training_rows"], found["validation_rows"]) == (31, 190, 21)
    assert (found["steps_per_epoch"], found["epochs"], found["steps"]) == (STEPS, 2, 2 * STEPS)
    assert found["hosts"] == [socket.gethostname()] * ranks
    assert found["threads"] == {"source": "--threads", "per_rank": [1] * ranks}
    assert found["allocator"]["kind"] == "tuned"
    assert len(found["wall_seconds"]) == ranks
    assert found["data"]["rows"] == 211
    threads = {str(value) for key, value in found["backend"].items() if key in ("threads", "intra_op_threads")}
    assert threads <= {"1"}
    assert threads or DEFAULT_BACKEND not in ("torch", "tensorflow", "keras")
    for machine in found["machine"]:
        assert machine["affinity"]
        assert machine["cores"] == os.cpu_count()


def test_run_json_names_versions_the_library_really_loaded_and_the_commit(runs: Runs) -> None:
    found = manifest(runs.folder(2))
    # Caffe is compiled here and has no metadata; a distribution may have another name than its package
    own = metadata.packages_distributions().get(DEFAULT_BACKEND, []) if DEFAULT_BACKEND != "caffe" else []
    for package in ("numpy", "mpi4py", "h5py", *own[:1]):
        assert metadata.version(package) in found["versions"].values()
    library = Path(found["mpi"]["library"])
    assert library.is_file()
    assert library.name.startswith("libmpi")
    assert "Open MPI" in found["mpi"]["version"]
    described = subprocess.run(
        ["git", "-C", str(REPOSITORY), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
    )
    if described.returncode == 0:
        assert found["commit"].removesuffix("-dirty") == described.stdout.strip()


@pytest.mark.parametrize("ranks", RANKS)
def test_results_log_holds_the_start_and_a_line_a_step(runs: Runs, ranks: int) -> None:
    folder = runs.folder(ranks)
    lines = (folder / "results.log").read_text(encoding="utf-8").splitlines()
    steps = [line for line in lines if re.match(r"epoch \d+ step", line)]
    head = lines[: -len(steps)]
    assert head == runs.outcome(ranks).stdout.splitlines()[: len(head)]
    assert lines[len(head) :] == steps
    assert len(steps) == 2 * STEPS
    assert [int(line.split()[3]) for line in steps] == list(range(2 * STEPS))
    row = table(folder / "loss.csv")[-1]
    assert f"loss {float(row['train_loss']):.6f}" in steps[-1]
    assert f"validation_loss {float(row['validation_loss']):.6f}" in steps[-1]
    assert "validation_loss" not in steps[0]


@pytest.mark.parametrize("ranks", RANKS)
def test_layers_csv_has_every_layer_once_with_its_parameters(runs: Runs, files: Path, ranks: int) -> None:
    architecture = read_network(files / "little.toml", (1, 28, 28), 10)
    rows = table(runs.folder(ranks) / "layers.csv")
    costs = layer_costs(architecture)
    assert [row["layer"] for row in rows] == [layer.name for layer in architecture.layers]
    assert sum(int(row["parameters"]) for row in rows) == architecture.size
    assert sum(int(row["gradient_bytes"]) for row in rows) == 4 * architecture.size
    assert [int(row["flops"]) for row in rows] == [cost.flops for cost in costs]
    assert all(float(row["forward_seconds"]) >= 0 and float(row["backward_seconds"]) >= 0 for row in rows)
    convolution = next(row for row in rows if row["layer"] == "conv1")
    assert float(convolution["forward_seconds"]) > 0


@pytest.mark.parametrize("ranks", RANKS)
def test_the_trace_shows_what_every_rank_did_one_thing_after_the_other(runs: Runs, ranks: int) -> None:
    document: dict[str, Any] = json.loads((runs.folder(ranks) / "trace.json").read_text(encoding="utf-8"))
    assert names_of(document) == {rank: f"rank {rank} on {socket.gethostname()}" for rank in range(ranks)}
    spans = slices_of(document)
    assert min(span["ts"] for span in spans) >= 0
    for rank in range(ranks):
        mine = [span for span in spans if span["pid"] == rank]
        phases = {span["cat"] for span in mine}
        computing = ["gradient"] if "gradient" in phases else ["forward", "backward"]
        assert {"start", "load", *computing, "update", "evaluate"} <= phases
        assert all(span["dur"] >= 0 for span in mine)
        # The last batch of an epoch has 4 rows: a rank may have none of them, and computes nothing then.
        assert 2 * (STEPS - (ranks > 1)) <= sum(span["cat"] == computing[0] for span in mine) <= 2 * STEPS
        if ranks > 1:
            assert sum(span["cat"] == "communicate" for span in mine) >= 2 * STEPS
            assert sum(span["name"] == "R0" for span in mine) >= 2 * STEPS
        for before, after in itertools.pairwise(mine):
            # Microseconds of a double's arithmetic: a span ends where the next one starts, to a nanosecond.
            assert after["ts"] == pytest.approx(before["ts"] + before["dur"], abs=1e-3)
    clocks = document["otherData"]["clocks"]
    # Before the first epoch, after each of two, and at the end.
    assert {rank: clock["readings"] for rank, clock in clocks.items()} == {f"rank {rank}": 4 for rank in range(ranks)}
    for clock in clocks.values():
        # Ranks of one host have one clock: what is read is within the error that is told.
        assert abs(clock["offset_seconds"]) <= clock["error_seconds"] + 1e-9
        assert abs(clock["drift_ppm"]) <= clock["drift_error_ppm"] + 1e-3
    assert document["otherData"]["messages"]["count"] == 0


def test_the_checkpoint_of_a_run_holds_its_architecture_and_names_of_labels(runs: Runs, files: Path) -> None:
    checkpoint = load_checkpoint(runs.folder(2))
    assert checkpoint.architecture == read_network(files / "little.toml", (1, 28, 28), 10)
    assert (checkpoint.epoch, checkpoint.epoch_step, checkpoint.step, checkpoint.samples) == (2, 0, 14, 380)
    assert checkpoint.label_names == tuple(map(str, range(10)))
    with h5py.File(runs.folder(2) / "checkpoint.h5", "r") as file:
        assert int(file.attrs["hpcnn_format"]) == 1


def test_of_runs_that_differ_in_ranks_alone_the_curves_agree(runs: Runs) -> None:
    for ranks in RANKS[1:]:
        # The bound of tests/mpi/test_training.py: float noise of 14 steps, far below one row classified otherwise.
        np.testing.assert_allclose(
            numbers(runs.folder(ranks), "train_loss"), numbers(runs.folder(1), "train_loss"), rtol=1e-3
        )
        assert [row[:3] for row in curve(runs.folder(ranks))] == [row[:3] for row in curve(runs.folder(1))]


def test_every_network_of_the_zoo_is_listed_with_its_parameters(worlds: Worlds) -> None:
    text = worlds.of(1).hpcnn("networks").stdout
    for network in networks():
        assert network.name in text
        assert f"{network.build((1, 28, 28), 10).size:,} parameters" in text
    assert "246,682" in text
    assert "3,274,634" in text
