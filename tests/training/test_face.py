"""The same five lines for every backend, alone and under mpirun, and what they train is what the command trains."""

from __future__ import annotations

import json
import re
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.backend_options import backend_label
from hpcnn.config import DEFAULT_BACKEND
from tests.mpi.digits import write_digits
from tests.support.mpi import FLAGS, REPOSITORY, SETTINGS, RankRun, mpirun_path, run_ranks, run_session
from tests.test_imports import FRAMEWORKS, imports
from tests.training.results import curve, manifest, numbers, table, vectors
from tests.training.worlds import World
from tests.wrappers.backends import INSTALLED, KERAS_BACKEND

EXAMPLE = REPOSITORY / "jobs" / "five_lines.py"
RANKS = (1, 2)
# the example takes a backend's name alone, and so Keras over TensorFlow
FACES = [name for name in INSTALLED if (name, KERAS_BACKEND) != ("keras", "theano")]
PAIRED = [name for name in FACES if name != "tensorflow"]
"""Also on two ranks; Keras is there with TensorFlow."""
EVERY_FACE = pytest.mark.parametrize("backend", FACES)
MINE = f"get_wrapper({DEFAULT_BACKEND!r})"
STEPS = 5  # of 211 rows in batches of 50

# Two ranks add the same float32 terms in another order, about 1e-6 of a gradient at step 0, carried on by 5 steps of
# Adam, which divides small gradients by their own size (as tests/mpi/test_training.py).
CURVE = 1e-3

# The same weights in another framework: float32 sums of at most 3,000 terms of size 1 in another order.
LOGITS = 1e-4


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example finds its data, small ones, and leaves its results."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "data").mkdir()
    write_digits(folder / "data", 211, name="train.csv")
    write_digits(folder / "data", 61, name="test.csv", source="test")
    return folder


@cache
def example(clone: Path, backend: str, ranks: int) -> tuple[RankRun, Path]:
    """The example's run in a folder of its own."""
    place = clone / f"{backend}-{ranks}"
    place.mkdir()
    (place / "data").symlink_to(clone / "data")
    launcher = [] if ranks == 1 else [mpirun_path(), "-np", str(ranks), *FLAGS]
    command = shlex.join([*launcher, sys.executable, str(EXAMPLE), backend])
    run = run_session(["bash", "-c", f"cd {shlex.quote(str(place))} && {command}"], timeout=240, env=SETTINGS)
    return run, place / "results"


def folder_of(results: Path) -> Path:
    (folder,) = (path for path in results.iterdir() if path.is_dir())
    return folder


@pytest.mark.parametrize(
    ("backend", "ranks"), [*((name, 1) for name in FACES), *((name, RANKS[-1]) for name in PAIRED)]
)
def test_the_example_trains_evaluates_and_saves_and_speaks_once(clone: Path, backend: str, ranks: int) -> None:
    run, results = example(clone, backend, ranks)
    assert run.returncode == 0, run.stderr
    assert run.left_behind == ()
    (accuracy,) = re.findall(r"^test accuracy (.*)%$", run.stdout, re.MULTILINE)
    assert 0 <= float(accuracy) <= 100
    assert run.stdout.count("\nresults: ") == 1
    folder = folder_of(results)
    assert f"_{backend_label(backend, {})}_data_np{ranks}_" in folder.name
    found = manifest(folder)
    assert (found["state"], found["ranks"], found["epochs"], found["steps"]) == ("completed", ranks, 1, STEPS)
    assert found["command"] == [str(EXAMPLE), backend]
    assert len(numbers(folder, "train_loss")) == STEPS
    assert (results / "digits.h5").read_bytes()


@pytest.mark.parametrize("backend", PAIRED)
def test_one_and_two_ranks_train_the_same(clone: Path, backend: str) -> None:
    alone, pair = (folder_of(example(clone, backend, ranks)[1]) for ranks in RANKS)
    np.testing.assert_allclose(numbers(pair, "train_loss"), numbers(alone, "train_loss"), rtol=CURVE)


LOGITS_OF = """
import sys, numpy as np
from hpcnn import get_wrapper
backend, data, out, *files = sys.argv[1:]
logits = []
for file in files:
    network = get_wrapper(backend, threads=1)
    network.load(file)
    network.predict(data)
    table = np.loadtxt(data, delimiter=",", skiprows=1, dtype=np.float32)[:, :-1].reshape(-1, 1, 28, 28)
    scale = network._checkpoint.normalisation.scale[:, None, None]
    logits.append(network._model.infer(table * scale))
np.save(out, logits)
"""


@cache
def logits(clone: Path, backend: str) -> dict[str, Any]:
    """By who saved it, what a backend makes of what each saved: a process reads all files."""
    out, files = clone / f"{backend}.npy", [str(example(clone, name, 1)[1] / "digits.h5") for name in FACES]
    arguments = [backend, str(clone / "data" / "test.csv"), str(out), *files]
    run = run_session([sys.executable, "-c", LOGITS_OF, *arguments], timeout=240, env=SETTINGS)
    assert run.returncode == 0, run.stderr
    return dict(zip(FACES, np.load(out), strict=True))


@EVERY_FACE
@pytest.mark.parametrize("other", FACES)
def test_any_backend_predicts_from_what_another_saved(clone: Path, backend: str, other: str) -> None:
    own, theirs = (logits(clone, name)[backend] for name in (backend, other))
    assert np.abs(own).max() > 0.1
    np.testing.assert_allclose(theirs, own, atol=LOGITS, rtol=0)


def test_the_command_predicts_from_what_a_script_saved(clone: Path, world: World, tmp_path: Path) -> None:
    run, results = example(clone, DEFAULT_BACKEND, 1)
    flags = ["--data", clone / "data" / "test.csv", "--out", tmp_path / "found.csv"]
    outcome = world.hpcnn("predict", results / "digits.h5", *flags)
    assert outcome.status == 0, outcome.stderr
    (accuracy,) = re.findall(r"^test accuracy (.*)%$", run.stdout, re.MULTILINE)
    assert f"accuracy {accuracy}%" in outcome.stdout


@pytest.fixture(
    scope="module", params=[pytest.param(ranks, marks=pytest.mark.needs("torch"), id=f"np{ranks}") for ranks in RANKS]
)
def driven(request: pytest.FixtureRequest, files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("driven")
    run = run_ranks(request.param, ["-m", "tests.training.face_driver", str(files), str(out)], timeout=240)
    assert run.returncode == 0, run.stderr
    return {**json.loads(run.stdout.splitlines()[-1]), "ranks": request.param, "out": out}


def test_every_rank_gets_the_same_results(driven: dict[str, Any]) -> None:
    assert driven["alike"]


def test_one_more_call_a_loaded_file_and_arrays_train_the_same_bits(driven: dict[str, Any]) -> None:
    whole, halves, rest, arrays = driven["histories"]
    assert len(set(driven["weights"])) == 1
    assert whole == halves == arrays
    assert rest == whole[len(whole) - len(rest) :]
    assert [row["epoch"] for row in whole] == [1] * 7 + [2] * 7
    assert driven["tests"][0] == driven["tests"][1]


def test_the_command_trains_the_same_bits(driven: dict[str, Any], worlds: Any, files: Path) -> None:
    out = driven["out"]
    worlds.of(driven["ranks"]).train(
        "--train", files / "train.csv", "--test", files / "test.csv", "--network", files / "little.toml", "--seed", 3,
        "--optimizer", "sgd", "--learning-rate", 0.05, "--momentum", 0.9, "--epochs", 2, "--global-batch", 31,
        "--validation-fraction", 0.1, "--out", out, "--run-id", "command",
    )  # fmt: skip
    assert curve(out / "command") == curve(out / "whole") == curve(out / "arrays")
    assert {name: vector.tobytes() for name, vector in vectors(out / "command").items()} == {
        name: vector.tobytes() for name, vector in vectors(out / "whole").items()
    }
    assert (out / "command" / "predictions.csv").read_bytes() == (out / "whole" / "predictions.csv").read_bytes()


def test_what_a_call_returns_is_what_its_folder_holds(driven: dict[str, Any]) -> None:
    whole, first, second = map(Path, driven["folders"])
    assert (first.name[-4:], second.name[-4:]) == ("_001", "_001")
    assert [row["train_loss"] for row in driven["histories"][0]] == numbers(whole, "train_loss")
    assert [row["gradient_norm"] for row in driven["histories"][0]] == numbers(whole, "gradient_norm")
    assert manifest(second)["config"]["resume"] == str(first)
    assert 0 < driven["wall_seconds"] < sum(manifest(whole)["wall_seconds"]) + 60
    loss, accuracy, rows = driven["evaluated"]
    assert manifest(whole)["test"] == {"rows": rows, "loss": loss, "accuracy": accuracy}
    of_file, of_rows, of_images = driven["predicted"]
    assert of_file == of_rows == of_images
    assert of_file == [int(row["Label"]) for row in table(whole / "predictions.csv")]


def test_compile_after_a_training_begins_the_optimizer_anew_and_epochs_count_on(driven: dict[str, Any]) -> None:
    assert driven["anew"] == [14, 0, ["first_moment", "second_moment"]]
    assert driven["third"] == [3, 14]


def test_a_new_network_forgets_what_was_loaded(driven: dict[str, Any]) -> None:
    assert driven["forgotten"].startswith("ConfigError: there is no trained network to evaluate")


def test_a_network_is_a_name_a_file_an_architecture_or_a_list(driven: dict[str, Any]) -> None:
    losses = driven["losses"]
    assert set(losses) == {"list", "Architecture", "file", "name"}
    assert all(len(steps) == 2 for steps in losses.values())
    assert losses["list"] == losses["Architecture"]


REFUSALS = {
    "setting": "ConfigError: TorchWrapper takes no setting 'sed': did you mean seed? known are backend_option",
    "line": "ConfigError: TorchWrapper takes no setting 'epochs': ",
    "value": "ConfigError: --threads 0 is out of range: it must be at least 1",
    "option": "did you mean channels_last?",
    "compile": "ConfigError: compile takes no setting 'optimiser': did you mean optimizer? known are optimizer, ",
    "rate": "ConfigError: --learning-rate -1.0 is out of range",
    "too early": "ConfigError: there is no network to train: call build_model or load before train",
    "untrained": "ConfigError: there is no trained network to evaluate: call train or load before evaluate",
    "unsaved": "ConfigError: there is no trained network to save: call train or load before save",
    "network": "NetworkError: network 'resnet' is unknown; choose one of",
    "shape": "NetworkError: input_shape is (28, 28); it must be (channels, height, width), each at least 1",
    "classes": "NetworkError: network 'custom' takes (1, 28, 28) and ends in 10 classes, but (1, 28, 28) and 7 were",
    "layers": "NetworkError: architecture is [3]; give a name that `hpcnn networks` lists",
    "batch": "ConfigError: --global-batch 0 is out of range",
    "epochs": "ConfigError: --epochs takes a whole number, not 'one'",
    "rows": "no such file; check the path (on every node)",
    "strings": "DataError: (arrays): x holds <U1; give an array of numbers, or the path of a CSV",
    "columns": "(arrays): x is (211, 783); the network takes (rows, 1, 28, 28) or (rows, 784) or (rows, 28, 28)",
    "labels": "DataError: (arrays): y is int64 (210,); give the class number of each of the 211 rows",
    "no labels": "DataError: (arrays): have no labels; give (x, y)",
    "label": "DataError: (arrays): y holds labels that are no whole numbers from 0 to 9; mend them",
    "number": "DataError: (arrays): x holds a number that is not finite in 32 bits",
    "checkpoint": "nowhere.h5: no checkpoint",
}


def test_what_does_not_fit_is_refused_in_one_line_on_every_rank(driven: dict[str, Any]) -> None:
    found = driven["refusals"]
    for name, words in REFUSALS.items():
        assert words in found[name]
        assert len(found[name].splitlines()) == 1
        assert "on this rank alone" not in found[name]
    if driven["ranks"] > 1:
        assert "DataError: (arrays): differ between rank 0 and rank 1" in found["on rank 1"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("get_wrapper('abacus')", "BackendError: backend 'abacus' is unknown: choose from torch"),
        (
            f"{MINE}.build_model('resnet', (1, 28, 28), 10)",
            "NetworkError: network 'resnet' is unknown",
        ),
        (
            f"network = {MINE}\nif network.rank == 1: 1 / 0\nnetwork.compile()",
            "ZeroDivisionError",
        ),
    ],
)
def test_an_error_that_nobody_caught_is_said_once_and_ends_all_ranks(lines: str, words: str) -> None:
    run = run_ranks(2, ["-c", f"from hpcnn import get_wrapper\n{lines}"])
    assert run.returncode != 0
    assert run.stderr.count(words) == 1
    assert run.left_behind == ()


def test_an_error_can_be_caught_and_all_goes_on() -> None:
    program = (
        f"from hpcnn import get_wrapper, errors\nnetwork = {MINE}\n"
        "try: network.build_model('resnet', (1, 28, 28), 10)\n"
        "except errors.NetworkError: print('caught')\nnetwork.compile(optimizer='sgd')"
    )
    run = run_ranks(2, ["-c", program])
    assert (run.returncode, run.stdout) == (0, "caught\ncaught\n")


def test_the_faces_class_is_imported_by_name_without_a_framework() -> None:
    found = imports("from hpcnn import TorchWrapper, get_wrapper; assert TorchWrapper.backend == 'torch'")
    assert found["tried"] & (FRAMEWORKS | {"mpi4py"}) == set()


def test_a_backend_that_is_not_there_is_no_attribute() -> None:
    import hpcnn

    with pytest.raises(
        AttributeError, match="hpcnn has no AbacusWrapper: backend 'abacus' is unknown: choose from torch"
    ):
        _ = hpcnn.AbacusWrapper
    with pytest.raises(ImportError):
        exec("from hpcnn import abacus")
