"""The command as a person meets it: bad input is one line, no traceback, nothing half-written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mpi.digits import write_digits
from tests.support.mpi import REPOSITORY, SETTINGS, RankRun, run_session

VERBS = ("train", "plan", "predict", "compare", "doctor", "networks", "backends", "study", "submit")
HPCNN = (sys.executable, "-m", "hpcnn")


def hpcnn(*arguments: object, **environ: str) -> RankRun:
    return run_session([*HPCNN, *map(str, arguments)], env={**SETTINGS, **environ})


def refused(run: RankRun, status: int | None = None) -> str:
    """The one line of a refusal."""
    lines = run.stderr.splitlines()
    assert len(lines) == 1, run.stderr
    assert lines[0].startswith("hpcnn: ")
    assert run.returncode != 0
    assert status is None or run.returncode == status
    assert run.stdout == ""
    return lines[0].removeprefix("hpcnn: ")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV of 60 rows with a header and the label last."""
    return write_digits(tmp_path_factory.mktemp("digits"), 60)


def damaged(source: Path, target: Path, kind: str) -> Path:
    """`source` with one thing wrong."""
    lines = source.read_text(encoding="utf-8").splitlines()

    def put(line: int, column: int, cell: str) -> None:
        cells = lines[line - 1].split(",")
        cells[column - 1] = cell
        lines[line - 1] = ",".join(cells)

    if kind == "cell":
        put(42, 300, "n/a")
    elif kind == "empty cell":
        put(42, 300, "")
    elif kind == "not finite":
        put(42, 300, "inf")
    elif kind == "short row":
        lines[36] = lines[36].partition(",")[2]
    elif kind == "long row":
        lines[36] += ",0"
    elif kind == "label":
        put(19, 785, "10")
    elif kind == "negative label":
        put(19, 785, "-1")
    elif kind == "fractional label":
        put(19, 785, "1.5")
    elif kind == "header alone":
        del lines[1:]
    elif kind == "empty":
        del lines[:]
    elif kind == "semicolons":
        lines = [line.replace(",", ";") for line in lines]
    elif kind == "no label":
        lines = [line.rpartition(",")[0] for line in lines]
    elif kind == "columns":
        lines = [line.partition(",")[2] for line in lines]
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return target


FILES = {
    "cell": "line 42, column 300: 'n/a' is not a number",
    "empty cell": "line 42, column 300: the cell is empty",
    "not finite": "line 42, column 300: 'inf' is not a finite number",
    "short row": "line 37, column 785: 784 cells where the first line has 785",
    "long row": "line 37, column 786: 786 cells where the first line has 785",
    "label": "line 19, column 785: label '10' is out of range for the 10 classes (0 to 9)",
    "negative label": "line 19, column 785: label '-1' is negative",
    "fractional label": "line 19, column 785: label '1.5' is no whole number",
    "header alone": "has a header but no rows",
    "empty": "is empty",
    "semicolons": "cells are separated by ';'",
    "no label": "no label",
    "columns": "--input-shape",
}


@pytest.mark.parametrize("kind", list(FILES))
def test_bad_training_rows_are_one_line_with_the_place_and_nothing_is_written(
    digits: Path, tmp_path: Path, kind: str
) -> None:
    path = damaged(digits, tmp_path / "rows.csv", kind)
    run = hpcnn("train", "--train", path, "--classes", 10, "--out", tmp_path / "out")
    message = refused(run, 1)
    assert message.startswith(str(path))
    assert FILES[kind] in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["cell", "label"])
def test_bad_test_rows_are_found_before_anything_is_trained(digits: Path, tmp_path: Path, kind: str) -> None:
    path = damaged(digits, tmp_path / "test.csv", kind)
    message = refused(hpcnn("train", "--train", digits, "--classes", 10, "--test", path, "--out", tmp_path / "out"), 1)
    assert message.startswith(str(path))
    assert FILES[kind] in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "words", "status"),
    [
        (["--train", "nowhere.csv"], "nowhere.csv: no such file", 1),
        (["--train", "."], ".: is a directory", 1),
        ([], "no training rows: give --train FILE.csv", 2),
        (["--train", ""], "--train is empty", 2),
        (["--train", "data/test.csv", "--test", "nowhere.csv"], "nowhere.csv: no such file", 1),
        (["--epochs", "many"], "--epochs takes a whole number, not 'many'", 2),
        (["--epochs", "-1"], "--epochs -1 is out of range", 2),
        (["--epochs"], "--epochs: expected one argument; see `hpcnn train --help`", 2),
        (["--epoch", "3"], "unrecognized arguments: --epoch; did you mean --epochs?;", 2),
        (["--run-id", "two\nlines"], "--run-id 'two\\nlines' is out of range", 2),
        (["--run-id", "x" * 300], "a name without / of at most 200 printable bytes", 2),
        (["--run-id", os.fsdecode(b"i\xff")], "--run-id 'i\\udcff' is not UTF-8", 2),
        (["--train", os.fsdecode(b"x\xff.csv")], "--train 'x\\udcff.csv' is not UTF-8", 2),
        (["--learning-rate", "nan"], "--learning-rate nan is out of range: it must be a finite number", 2),
        (["--learning-rate", "inf"], "--learning-rate inf is out of range", 2),
        (["--global-batch", "0"], "--global-batch 0 is out of range", 2),
        (["--optimizer", "adagrad"], "--optimizer 'adagrad' is unknown: choose from sgd, adam", 2),
        (["--nesterov"], "--nesterov belong to --optimizer sgd", 2),
        (["--run-id", "a/b"], "--run-id 'a/b'", 2),
        (["--input-shape", "28,28"], "--input-shape '28,28' is not channels,height,width", 2),
        (["--train", "data/test.csv", "--input-shape", "1,28,29"], "784 features", 1),
        (["--backend", "abacus"], "--backend 'abacus' is unknown: choose from torch", 2),
        (["--train", "data/test.csv", "--network", "nothing"], "network 'nothing' is unknown; choose one of cnn2d_", 2),
        (["--train", "data/test.csv", "--network", "nothing.toml"], "nothing.toml: cannot be read", 2),
        (["--train", "data/test.csv", "--grid", "dp=2"], "--grid dp=2,pp=1,tp=1 needs 2 ranks, not 1", 1),
        (["--train", "data/test.csv", "--grid", "two"], "--grid 'two'", 2),
        (["--train", "data/test.csv", "--inject", "mean-twice"], "does nothing in one process", 1),
        (["--train", "data/test.csv", "--label-column", "nose"], "no column named 'nose'", 1),
        (["--train", "data/test.csv", "--label-column", "none"], "has no labels", 1),
        (["--train", "data/test.csv", "--classes", "3"], "is out of range for the 3 classes", 1),
        (["--train", "data/test.csv", "--logical-shards", "100000000000"], "--logical-shards 100,000,000,000", 2),
        (["--train", "data/test.csv", "--micro-batches", "100000000000"], "--micro-batches 100,000,000,000", 2),
        (["--train", "data/test.csv", "--threads", "1000000"], "1000000 threads", 2),
        (["--train", "data/test.csv", "--classes", "1000000000000"], "not enough memory", 1),
        (["--resume", "nowhere"], "nowhere: no checkpoint", 1),
        (["--resume", "README.md"], "README.md: is not a checkpoint", 1),
        (["nowhere.toml"], "nowhere.toml: no such run file", 2),
        (["pyproject.toml"], "pyproject.toml: unknown table or key", 2),
        (["a.toml", "b.toml"], "unrecognized arguments: b.toml", 2),
    ],
)
def test_a_wrong_flag_or_value_is_one_line_that_names_it_and_nothing_is_written(
    tmp_path: Path, flags: Sequence[str], words: str, status: int
) -> None:
    message = refused(hpcnn("train", "--out", tmp_path / "out", *flags), status)
    assert words in message
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_there_is_never_overwritten(digits: Path, tmp_path: Path) -> None:
    there = tmp_path / "out" / "mine"
    there.mkdir(parents=True)
    (there / "loss.csv").write_text("precious")
    message = refused(hpcnn("train", "--train", digits, "--out", tmp_path / "out", "--run-id", "mine"), 1)
    assert message.startswith(f"{there}: exists already; give another --run-id")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["loss.csv"]
    assert (there / "loss.csv").read_text() == "precious"


def test_results_that_cannot_be_made_where_they_should_are_one_line(digits: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = refused(hpcnn("train", "--train", digits, "--out", tmp_path / "file"), 1)
    assert message.startswith(f"{tmp_path / 'file'}: cannot be made")
    assert "choose another --out" in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the following arguments are required: VERB; see `hpcnn --help`"),
        (["fly"], "invalid choice: 'fly'"),
        (["predict"], "the following arguments are required: RUN, --data, --out; see `hpcnn predict --help`"),
        (["compare", "one"], "the following arguments are required: RUN; see `hpcnn compare --help`"),
        (["networks", "--json"], "unrecognized arguments: --json"),
        (["predict", "x", "--data", "y", "--out", "z", "--header", "perhaps"], "invalid choice: 'perhaps'"),
    ],
)
def test_a_wrong_verb_or_a_missing_argument_is_one_line_with_the_help_to_ask_for(
    arguments: Sequence[str], words: str
) -> None:
    assert words in refused(hpcnn(*arguments), 2)


def test_the_verbs_are_listed_and_each_has_a_help() -> None:
    text = hpcnn("--help").stdout
    for verb in VERBS:
        assert f"\n    {verb} " in text
        run = hpcnn(verb, "--help")
        assert run.returncode == 0
        assert run.stderr == ""
        assert run.stdout.startswith(f"usage: hpcnn {verb} ")


def test_the_version_and_the_backends_are_told() -> None:
    from hpcnn import __version__

    assert hpcnn("--version").stdout == f"hpcnn {__version__}\n"
    run = hpcnn("backends")
    assert run.returncode == 0
    states = [line.split(maxsplit=2) for line in run.stdout.splitlines() if not line.startswith(" ")]
    ready = [[name, "ready"] for name in ("torch", "tensorflow", "keras")]
    elsewhere = [[name, "missing"] for name in ("keras-theano", "lasagne", "caffe")]
    assert [state[:2] for state in states] == [*ready, *elsewhere, ["simulated", "ready"]]
    assert re.fullmatch(r"\(torch \d+\.\d+\S*\)", states[0][2])
    assert all(f"{name} " in states[2][2] for name in ("keras", "tensorflow", "torch", "jax"))
    assert "    [backend.torch]\n    channels_last = true " in run.stdout
    assert re.search(
        r"\n    \[reducer.horovod\] +(ready \(horovod .* for torch |missing: HPCNN_HOROVOD=yes bash )", run.stdout
    )
    networks = hpcnn("networks")
    assert networks.returncode == 0
    assert "cnn2d_3layer_fullconnected_3layer" in networks.stdout
    assert "246,682 parameters" in networks.stdout


def test_the_command_and_the_module_are_the_same() -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = run_session([str(REPOSITORY / "env" / "bin" / "hpcnn"), "networks"], env={"PATH": path})
    assert command.stdout == hpcnn("networks").stdout != ""


def test_letters_that_the_locale_does_not_know_are_refused_before_anything_is_done(
    digits: Path, tmp_path: Path
) -> None:
    arguments = ["train", "--train", digits, "--out", tmp_path / "ü", "--max-steps", 1, "--threads", 1]
    message = refused(hpcnn(*arguments, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"), 2)
    assert "is not UTF-8" in message
    assert hpcnn(*arguments, LANG="C").returncode == 0


def test_the_environments_backend_is_the_default_and_a_flag_overrides_it(digits: Path, tmp_path: Path) -> None:
    rows = ["train", "--train", digits, "--max-steps", 1, "--validation-fraction", 0, "--out", tmp_path]
    words = refused(hpcnn(*rows, HPCNN_BACKEND="abacus"), status=2)
    assert words.startswith("--backend 'abacus' is unknown: choose from torch, tensorflow, keras, lasagne, caffe")
    words = refused(hpcnn(*rows, HPCNN_BACKEND="keras-abacus"), status=2)
    assert words.endswith("backend 'abacus' is unknown: choose from tensorflow, torch, jax, theano")
    run = hpcnn(*rows, "--backend", "torch", HPCNN_BACKEND="abacus")
    assert run.returncode == 0, run.stderr
