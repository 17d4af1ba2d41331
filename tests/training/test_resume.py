"""A training that was stopped and goes on is the training that was never stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.training.results import curve, manifest, numbers, vectors
from tests.training.worlds import Outcome, World, Worlds, refusal

OPTIMIZERS = {
    "sgd": ["--optimizer", "sgd", "--learning-rate", 0.05, "--momentum", 0.9, "--nesterov", "--decay", 0.01],
    "adam": ["--optimizer", "adam", "--learning-rate", 3e-3, "--weight-decay", 0.01, "--warmup-epochs", 3],
}

# Another number of ranks adds the same float32 terms in another order: 6e-6 of a gradient at step 0 (see
# tests/mpi/test_training.py, as is the curve's bound), carried on by 14 steps of a network that has no pool of maxima.
CURVE = 1e-3


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


def train(world: World, files: Path, out: Path, name: str, *flags: object) -> Path:
    """A run of the little network, once."""
    folder = out / name
    if not folder.exists():
        world.train(
            "--train", files / "train.csv", "--network", files / "little.toml", "--global-batch", 31,
            "--validation-fraction", 0.1, "--out", out, "--run-id", name, *flags,
        )  # fmt: skip
    return folder


def halves(world: World, files: Path, out: Path, optimizer: str) -> tuple[Path, Path]:
    """Four epochs at a stretch, and the first two of them."""
    flags = OPTIMIZERS[optimizer]
    return (
        train(world, files, out, f"{optimizer}-whole", *flags, "--epochs", 4),
        train(world, files, out, f"{optimizer}-half", *flags, "--epochs", 2),
    )


def resume(world: World, half: Path, name: str, *flags: object) -> Path:
    world.train("--resume", half, "--out", half.parent, "--run-id", name, *flags)
    return half.parent / name


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_two_epochs_and_two_more_are_four_to_the_bit(world: World, files: Path, out: Path, optimizer: str) -> None:
    whole, half = halves(world, files, out, optimizer)
    rest = resume(world, half, f"{optimizer}-rest", "--epochs", 4)
    steps = len(curve(half))
    assert steps == 14
    assert curve(half) == curve(whole)[:steps]
    assert curve(rest) == curve(whole)[steps:]
    expected, found = vectors(whole), vectors(rest)
    assert list(found) == list(expected)
    assert len(expected) == {"sgd": 2, "adam": 3}[optimizer]
    for name, vector in expected.items():
        assert found[name].tobytes() == vector.tobytes(), name


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("ranks", [2, 3])
def test_going_on_with_another_number_of_ranks_is_the_same_training(
    worlds: Worlds, files: Path, out: Path, optimizer: str, ranks: int
) -> None:
    whole, half = halves(worlds.of(1), files, out, optimizer)
    rest = resume(worlds.of(ranks), half, f"{optimizer}-rest{ranks}", "--epochs", 4)
    assert manifest(rest)["ranks"] == ranks
    for column in ("epoch", "step", "samples", "learning_rate"):
        assert numbers(rest, column) == numbers(whole, column)[14:]
    for column in ("train_loss", "validation_loss"):
        expected = numbers(whole, column)[-len(numbers(rest, column)) :]
        np.testing.assert_allclose(numbers(rest, column), expected, rtol=CURVE, err_msg=column)


def test_a_run_that_was_stopped_inside_an_epoch_trains_the_rows_that_are_left_of_it(
    worlds: Worlds, files: Path, out: Path
) -> None:
    world = worlds.of(1)
    whole, _ = halves(world, files, out, "sgd")
    cut = train(world, files, out, "cut", *OPTIMIZERS["sgd"], "--epochs", 4, "--max-steps", 10)
    assert manifest(cut)["steps"] == 10
    rest = resume(world, cut, "cut-rest")
    columns = slice(0, 7)  # the cut run validated at its end, in the middle of the epoch, which the whole one did not
    assert [row[columns] for row in curve(rest)] == [row[columns] for row in curve(whole)[10:]]
    assert vectors(rest)["weights"].tobytes() == vectors(whole)["weights"].tobytes()
    for ranks in (1, 2):
        flags = ["--resume", cut, "--out", out, "--run-id", "never", "--global-batch", 30]
        words = refusal(worlds.of(ranks).hpcnn("train", *flags))
        assert "after step 3 of an epoch" in words
        assert "--global-batch 31" in words


def test_alone_it_takes_the_old_runs_settings_and_flags_override_them(world: World, files: Path, out: Path) -> None:
    _, half = halves(world, files, out, "sgd")
    rest = resume(world, half, "alone", "--seed", 7, "--epochs", 3)
    old, new = manifest(half)["config"], manifest(rest)["config"]
    changed = {"epochs": 3, "seed": 7, "run_id": "alone", "resume": str(half)}
    assert new == {**old, **changed}
    assert numbers(rest, "epoch") == [3] * 7


def test_a_run_file_may_say_what_to_resume(world: World, files: Path, out: Path) -> None:
    whole, half = halves(world, files, out, "sgd")
    run_file = out / "run.toml"
    run_file.write_text(f'[run]\nresume = "{half}"\nepochs = 3\n', encoding="utf-8")
    world.train(run_file, "--epochs", 4, "--out", out, "--run-id", "from-file")
    assert curve(out / "from-file") == curve(whole)[14:]


def test_a_finished_run_that_is_resumed_says_that_nothing_is_left(world: World, files: Path, out: Path) -> None:
    _, half = halves(world, files, out, "sgd")
    outcome = world.train("--resume", half, "--out", out, "--run-id", "nothing-left")
    assert f"resumed from {half} after epoch 2, step 14" in outcome.stdout
    assert "warning: 2 epochs of 2 were done before: give --epochs above 2 to go on" in outcome.stdout
    assert curve(out / "nothing-left") == []
    assert vectors(out / "nothing-left")["weights"].tobytes() == vectors(half)["weights"].tobytes()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--network", "cnn2d_2layer_fullconnected_2layer"], "holds little for (1, 28, 28) and 10 classes, this run"),
        (["--classes", "11"], "and 10 classes, this run builds little for (1, 28, 28) and 11 classes"),
        (["--momentum", "0", "--no-nesterov"], "optimizer state is ['velocity'], this run's is []: resume with"),
        (["--momentum", "0", "--no-nesterov", "--optimizer", "adam"], "is ['first_moment', 'second_moment']"),
        (["--normalise", "none"], "learnt from rows scaled by --normalise scale, not none: leave --normalise out"),
        (["--nesterov", "--optimizer", "adam"], "--momentum and --nesterov belong to --optimizer sgd"),
    ],
)
def test_another_network_or_optimizer_is_refused_in_one_line(
    worlds: Worlds, files: Path, out: Path, ranks: int, flags: list[str], words: str
) -> None:
    _, half = halves(worlds.of(1), files, out, "sgd")
    outcome: Outcome = worlds.of(ranks).hpcnn(
        "train", "--resume", half, "--epochs", 4, "--out", out / "refused", "--threads", 1, *flags
    )
    assert words in refusal(outcome, out / "refused")


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_no_checkpoint_is_refused_in_one_line(worlds: Worlds, files: Path, out: Path, ranks: int) -> None:
    for place, words in [(files / "train.csv", "is not a checkpoint"), (out / "nowhere", "no checkpoint")]:
        outcome = worlds.of(ranks).hpcnn("train", "--resume", place, "--out", out / "refused")
        assert words in refusal(outcome, out / "refused")


def test_a_cut_epoch_goes_on_with_its_own_rows_only(worlds: Worlds, files: Path, out: Path) -> None:
    cut = train(worlds.of(1), files, out, "cut", "--max-steps", 3)
    outcome = worlds.of(1).hpcnn(
        "train",
        "--resume",
        cut,
        "--train",
        files / "test.csv",
        "--classes",
        10,
        "--out",
        out / "refused",
        "--threads",
        1,
    )
    assert "ends after step 3 of an epoch of 211 rows, but" in refusal(outcome, out / "refused")


def test_a_run_of_other_ranks_or_threads_is_resumed_without_its_layout(worlds: Worlds, files: Path, out: Path) -> None:
    half = train(worlds.of(1), files, out, "laid-out", "--epochs", 1, "--grid", "dp=1")
    rest = resume(worlds.of(2), half, "laid-out-2", "--epochs", 2)
    assert manifest(rest)["grid"] == "dp=2,pp=1,tp=1"


def test_a_resumed_runs_file_that_is_not_here_is_named_with_the_flag(worlds: Worlds, files: Path, out: Path) -> None:
    moved = out / "moved.csv"
    moved.write_bytes((files / "train.csv").read_bytes())
    half = train(worlds.of(1), files, out, "moved", "--train", moved, "--epochs", 1)
    moved.unlink()
    outcome = worlds.of(1).hpcnn("train", "--resume", half, "--out", out / "refused")
    assert f"--train {moved} of the resumed run is not there from this folder: give --train" in refusal(
        outcome, out / "refused"
    )
