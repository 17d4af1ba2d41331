"""What settings do to a training, seen in what it leaves: each on real rows, through the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpcnn.config import DEFAULT_BACKEND
from hpcnn.data.dataset import load_dataset
from hpcnn.network.initial import initial_weights
from hpcnn.training.checkpoint import load_checkpoint
from tests.training.results import curve, manifest, numbers, table
from tests.training.worlds import Worlds, refusal

ROWS = 211
Train = Callable[..., Path]


@pytest.fixture(scope="module")
def train(worlds: Worlds, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Runs the little network on one process; returns the run's folder. The same flags run once."""
    out = tmp_path_factory.mktemp("settings")
    done: dict[tuple[str, ...], Path] = {}

    def run(*flags: object) -> Path:
        key = tuple(map(str, flags))
        if key not in done:
            outcome = worlds.of(1).train(
                "--train", files / "train.csv", "--network", files / "little.toml", "--global-batch", 31,
                "--epochs", 1, "--out", out, *flags,
            )  # fmt: skip
            done[key] = Path(outcome.stdout.splitlines()[-1].removeprefix("results: "))
        return done[key]

    return run


def weights(folder: Path) -> np.ndarray:
    return load_checkpoint(folder).weights


def files_of(folder: Path) -> set[str]:
    """What every backend leaves; Caffe its networks besides."""
    return {path.name for path in folder.iterdir() if path.suffix != ".prototxt"}


ALWAYS = {
    "run.json", "loss.csv", "timing.csv", "layers.csv", "rows.csv", "replicas.csv", "results.log", "checkpoint.h5",
    "ranks",
}  # fmt: skip


def test_no_epochs_leave_the_initial_weights_and_every_file(train: Train) -> None:
    folder = train("--epochs", 0, "--seed", 5)
    checkpoint = load_checkpoint(folder)
    assert checkpoint.weights.tobytes() == initial_weights(checkpoint.architecture, 5).tobytes()
    assert curve(folder) == []
    assert (folder / "loss.csv").read_text().startswith("run,epoch,step,")
    assert files_of(folder) == ALWAYS
    found = manifest(folder)
    assert (found["state"], found["epochs"], found["steps"], found["test"]) == ("completed", 0, 0, None)


def test_a_limit_of_steps_ends_the_run_there_with_all_its_files(train: Train) -> None:
    limited, whole = train("--epochs", 3, "--max-steps", 9), train("--epochs", 3)
    assert curve(limited) == curve(whole)[:9]
    assert len(curve(whole)) == 21
    assert manifest(limited)["steps"] == 9
    assert files_of(limited) == ALWAYS


def test_steps_that_settle_are_timed_apart_and_trained_alike(train: Train) -> None:
    settled, plain = train("--epochs", 2, "--settle-steps", 3), train("--epochs", 2)
    assert curve(settled) == curve(plain)
    assert weights(settled).tobytes() == weights(plain).tobytes()
    updates = {
        folder: {
            int(row["epoch"]): int(row["count"]) for row in table(folder / "timing.csv") if row["phase"] == "update"
        }
        for folder in (settled, plain)
    }
    assert updates == {settled: {0: 3, 1: 4, 2: 7}, plain: {1: 7, 2: 7}}


def test_steps_that_settle_may_reach_into_a_later_epoch(train: Train) -> None:
    folder = train("--epochs", 2, "--settle-steps", 9)
    found = {int(row["epoch"]): int(row["count"]) for row in table(folder / "timing.csv") if row["phase"] == "update"}
    assert found == {0: 9, 2: 5}


def test_a_run_of_nothing_but_steps_that_settle_is_refused(worlds: Worlds, files: Path, tmp_path: Path) -> None:
    outcome = worlds.of(1).hpcnn(
        "train", "--train", files / "train.csv", "--network", files / "little.toml", "--epochs", 2,
        "--out", tmp_path / "out", "--threads", 1, "--global-batch", 31, "--settle-steps", 14,
    )  # fmt: skip
    assert "--settle-steps 14 leaves none of 14 steps to measure: give fewer, or more --epochs" in refusal(outcome)
    assert not (tmp_path / "out").exists()


def test_another_seed_is_another_training_and_the_same_seed_the_same(train: Train) -> None:
    one, two = train("--seed", 1), train("--seed", 2)
    assert manifest(one)["config"]["seed"] == 1
    assert numbers(one, "train_loss") != numbers(two, "train_loss")
    assert weights(one).tobytes() == weights(train()).tobytes()
    assert curve(one) == curve(train())


def test_validation_rows_are_kept_out_and_validated_at_an_epochs_end(train: Train) -> None:
    folder = train("--epochs", 2, "--validation-fraction", 0.3)
    rows = table(folder / "loss.csv")
    assert (manifest(folder)["training_rows"], manifest(folder)["validation_rows"]) == (148, 63)
    assert int(rows[-1]["samples"]) == 2 * 148
    validated = [int(row["step"]) for row in rows if row["validation_loss"]]
    assert validated == [4, 9]
    assert all((row["validation_loss"] == "") == (row["validation_accuracy"] == "") for row in rows)
    accuracies = np.array(numbers(folder, "validation_accuracy")) * 63
    np.testing.assert_allclose(accuracies, np.round(accuracies), atol=1e-9)


def test_a_fraction_of_less_than_one_row_is_warned_of(worlds: Worlds, files: Path, tmp_path: Path) -> None:
    outcome = worlds.of(1).train(
        "--train", files / "train.csv", "--network", files / "little.toml", "--epochs", 0, "--out", tmp_path,
        "--validation-fraction", 0.004,
    )  # fmt: skip
    assert "warning: --validation-fraction 0.004 of 211 rows is less than one row" in outcome.stdout


def raw_rows(files: Path) -> np.ndarray:
    return load_dataset(files / "train.csv").features.reshape(ROWS, -1).astype(np.float64)


def test_rows_can_be_left_as_they_are_scaled_or_standardised(train: Train, files: Path) -> None:
    raw = raw_rows(files)
    found = {}
    for kind in ("none", "scale", "standard"):
        normalisation = load_checkpoint(train("--normalise", kind)).normalisation
        found[kind] = (raw - normalisation.shift) * normalisation.scale
        assert normalisation.shift.shape == normalisation.scale.shape == (1,)
    assert (found["none"] == raw).all()
    # Shift and scale are float32: relative 2^-24 each.
    assert found["scale"].min() == 0
    assert found["scale"].max() == pytest.approx(1, rel=1e-6)
    assert found["standard"].mean() == pytest.approx(0, abs=1e-6)
    assert found["standard"].std() == pytest.approx(1, rel=1e-6)
    losses = {kind: numbers(train("--normalise", kind), "train_loss")[0] for kind in found}
    assert len(set(losses.values())) == 3


def test_normalisation_never_looks_at_validation_rows(train: Train, files: Path) -> None:
    folder = train("--normalise", "standard", "--validation-fraction", 0.3)
    assert load_checkpoint(folder).normalisation.shift[0] != pytest.approx(raw_rows(files).mean(), rel=1e-4)


def test_weight_decay_of_either_kind_shrinks_weights_in_its_own_way(train: Train) -> None:
    flags = ("--epochs", 2, "--learning-rate", 0.01, "--weight-decay", 1.0, "--weight-decay-kind")
    plain, decoupled, coupled = train("--epochs", 2, "--learning-rate", 0.01), *(
        train(*flags, kind) for kind in ("decoupled", "coupled")
    )  # fmt: skip
    norms = [float(np.linalg.norm(weights(folder))) for folder in (plain, decoupled, coupled)]
    assert norms[1] < 0.95 * norms[0]
    assert norms[2] < 0.95 * norms[0]
    assert abs(norms[1] - norms[2]) > 0.01 * norms[0]


def test_weight_decay_without_a_gradient_is_the_written_formula(train: Train) -> None:
    # One step of plain sgd, w -= rate d w and w -= rate g: what two runs that differ in d alone differ by is the first.
    flags = ("--optimizer", "sgd", "--learning-rate", 0.5, "--max-steps", 1)
    start = weights(train("--epochs", 0)).astype(np.float64)
    plain = weights(train(*flags)).astype(np.float64)
    for kind in ("decoupled", "coupled"):
        decayed = weights(train(*flags, "--weight-decay", 0.2, "--weight-decay-kind", kind)).astype(np.float64)
        # Four float32 roundings, each 2^-24 of numbers no larger than 1.
        np.testing.assert_allclose(plain - decayed, 0.5 * 0.2 * start, atol=4 * 2.0**-24)


def test_checkpoints_between_epochs_do_not_change_the_training(train: Train) -> None:
    assert curve(train("--epochs", 3, "--checkpoint-every", 2)) == curve(train("--epochs", 3))


def test_micro_batches_do_not_change_the_training_but_for_float_noise(train: Train) -> None:
    whole, pieces = train("--epochs", 2), train("--epochs", 2, "--micro-batches", 3)
    assert manifest(pieces)["program"] == "F0.0 L0.0 F0.1 L0.1 F0.2 L0.2 U0"
    np.testing.assert_allclose(numbers(pieces, "train_loss"), numbers(whole, "train_loss"), rtol=1e-3)


@pytest.mark.parametrize(("shape", "expected"), [("1,14,56", [1, 14, 56]), ("4x14x14", [4, 14, 14])])
def test_rows_can_be_given_another_shape(train: Train, shape: str, expected: list[int]) -> None:
    folder = train("--input-shape", shape)
    assert manifest(folder)["data"]["input_shape"] == expected
    kernel = load_checkpoint(folder).architecture.parameters[0]
    assert kernel.shape == (4, expected[0], 5, 5)


def test_a_shape_of_another_size_is_refused(worlds: Worlds, files: Path, tmp_path: Path) -> None:
    outcome = worlds.of(1).hpcnn(
        "train", "--train", files / "train.csv", "--input-shape", "1,27,29", "--out", tmp_path / "out"
    )
    assert "784 features" in refusal(outcome, tmp_path / "out")


def test_more_classes_than_labels_are_heads_that_are_never_right(train: Train, files: Path) -> None:
    folder = train("--classes", 12, "--test", files / "test.csv", "--epochs", 3)
    checkpoint = load_checkpoint(folder)
    assert checkpoint.architecture.num_classes == 12
    assert checkpoint.label_names == tuple(map(str, range(12)))
    assert manifest(folder)["test"]["accuracy"] > 0.2


@pytest.mark.parametrize("label_column", ["auto", "last", "label", "784"])
def test_a_test_file_without_labels_is_predicted_and_not_judged(
    worlds: Worlds, files: Path, train: Train, tmp_path: Path, label_column: str
) -> None:
    unlabelled = tmp_path / "unlabelled.csv"
    lines = (files / "test.csv").read_text(encoding="utf-8").splitlines()
    unlabelled.write_text("\n".join(line.rpartition(",")[0] for line in lines) + "\n", encoding="utf-8")
    outcome = worlds.of(1).train(
        "--train", files / "train.csv", "--network", files / "little.toml", "--global-batch", 31, "--epochs", 1,
        "--test", unlabelled, "--out", tmp_path, "--run-id", "run", "--label-column", label_column,
    )  # fmt: skip
    assert f"test {unlabelled}: 61 rows; a header, 784 features, no label" in outcome.stdout
    assert "test: 61 rows, no labels" in outcome.stdout
    assert manifest(tmp_path / "run")["test"] == {"rows": 61, "loss": None, "accuracy": None}
    labelled = train("--test", files / "test.csv")
    assert (tmp_path / "run" / "predictions.csv").read_bytes() == (labelled / "predictions.csv").read_bytes()


def test_a_network_of_ones_own_is_kept_whole_in_run_and_checkpoint(train: Train) -> None:
    folder = train()
    layers = manifest(folder)["network"]["layers"]
    assert [layer["type"] for layer in layers] == [
        "convolution", "tanh", "convolution", "relu", "average_pool", "flatten", "dropout", "dense", "softmax",
    ]  # fmt: skip
    assert layers[0]["stride"] == [2, 2]
    assert layers[2]["groups"] == 2
    with h5py.File(folder / "checkpoint.h5", "r") as file:
        assert file["weights/conv2/kernel"].shape == (8, 2, 3, 3)
    assert load_checkpoint(folder).architecture.to_dict() == manifest(folder)["network"]


def test_a_run_gets_a_readable_name_of_its_own_each_time(worlds: Worlds, files: Path, tmp_path: Path) -> None:
    for _ in range(2):
        worlds.of(1).train(
            "--train", files / "train.csv", "--network", files / "little.toml", "--epochs", 0, "--out", tmp_path / "out"
        )
    first, second = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert first.startswith(f"little_{DEFAULT_BACKEND}_data_np1_")
    assert first.endswith("_001")
    assert second == first.removesuffix("001") + "002"


def test_a_larger_batch_than_the_documented_one_with_the_same_rate_is_warned_of(
    worlds: Worlds, files: Path, tmp_path: Path
) -> None:
    flags = ["--train", files / "train.csv", "--network", "cnn2d_2layer_fullconnected_2layer", "--epochs", 0]
    outcome = worlds.of(1).train(*flags, "--global-batch", 200, "--out", tmp_path)
    assert "warning: global batch 200 is larger than this network's documented 50" in outcome.stdout
    scaled = worlds.of(1).train(*flags, "--global-batch", 200, "--base-batch", 50, "--out", tmp_path)
    assert "warning" not in scaled.stdout
