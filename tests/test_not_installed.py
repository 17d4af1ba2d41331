"""A framework that this environment lacks: one line, on rank 0 alone, with the commands that bring it and use it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcnn.wrappers.registry import BACKENDS, Backend, find_backend, served_by
from tests.support.mpi import RankRun, run_ranks, run_session

DRIVER = ("-m", "tests.support.without")
FRAMEWORKS = [name for name, entry in BACKENDS.items() if entry.requires]
"""`simulated` needs nothing, so nothing can be missing."""


def alone(hidden: str, *arguments: object) -> RankRun:
    return run_session([sys.executable, *DRIVER, hidden, *map(str, arguments)])


def lacking(backend: Backend, hidden: str) -> str:
    """What a backend lacks where `hidden` is not installed, besides what this environment lacks."""
    lacks = {*backend.missing, *hidden.split(",")}
    return ", ".join(package for package in backend.requires if package in lacks)


def remedy(backend: Backend, hidden: str, here: str = "") -> str:
    return (
        f"hpcnn: {backend.flags} needs {lacking(backend, hidden)}, not installed in this environment: make its "
        f"environment with `bash env/create.sh {backend.recipe}` and start with `bash env/with.sh {backend.word} hpcnn "
        f"...`{here}\n"
    )


def over(keras_backend: str) -> Backend:
    return find_backend("keras", {"backend": keras_backend})


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_two_ranks_say_it_once_and_leave_nothing(backend: str, tmp_path: Path) -> None:
    arguments = ["train", "--train", "data/test.csv", "--backend", backend, "--out", str(tmp_path / "out")]
    run = run_ranks(2, [*DRIVER, backend, *arguments])
    assert run.returncode == 1
    said = [line for line in run.stderr.splitlines(keepends=True) if line.startswith("hpcnn: ")]
    assert said == [remedy(BACKENDS[backend], backend)]
    assert "Traceback" not in run.stderr
    assert run.left_behind == ()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_one_process_says_that_line_and_nothing_else(backend: str, tmp_path: Path) -> None:
    run = alone(backend, "train", "--train", "data/test.csv", "--backend", backend, "--out", tmp_path / "out")
    assert (run.returncode, run.stdout, run.stderr) == (1, "", remedy(BACKENDS[backend], backend))


@pytest.mark.parametrize("keras_backend", ["tensorflow", "torch", "jax", "theano"])
def test_what_keras_computes_with_is_asked_for_too(keras_backend: str, tmp_path: Path) -> None:
    rows = ["train", "--train", "data/test.csv", "--backend", "keras", "--keras-backend", keras_backend]
    others = [
        name for name in ("tensorflow", "torch", "jax", "theano") if name != keras_backend and not over(name).missing
    ]
    here = f"; this one has Keras over {', '.join(others)} (--keras-backend)" if others else ""
    run = alone(keras_backend, *rows, "--out", tmp_path / "out")
    assert run.stderr == remedy(over(keras_backend), keras_backend, here)
    without = alone(f"keras,{keras_backend}", *rows, "--out", tmp_path / "out")
    assert without.stderr == remedy(over(keras_backend), f"keras,{keras_backend}")


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_the_list_of_backends_says_which_is_missing_and_what_brings_it(backend: str) -> None:
    run = alone(backend, "backends")
    assert (run.returncode, run.stderr) == (0, "")
    states = {line.split()[0]: line for line in run.stdout.splitlines() if not line.startswith(" ")}
    entries = {entry.word: entry for name in BACKENDS for entry in served_by(name)}
    assert set(states) == set(entries) >= set(BACKENDS)
    for word, entry in entries.items():
        if lacks := lacking(entry, backend):
            assert f"missing {lacks}: bash env/create.sh {entry.recipe}, then bash env/with.sh {word}" in states[word]
        else:
            assert states[word].split()[1] == "ready"
    # Its switches are told all the same: a run file may be written where another environment is.
    assert all(f"[backend.{name}]" in run.stdout for name in BACKENDS)
