"""A framework that this environment lacks: one line, on rank 0 alone, with the commands that bring it and use it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcnn.wrappers.registry import BACKENDS
from tests.support.mpi import RankRun, run_ranks, run_session

DRIVER = ("-m", "tests.support.without")


def alone(hidden: str, *arguments: object) -> RankRun:
    return run_session([sys.executable, *DRIVER, hidden, *map(str, arguments)])


def remedy(backend: str, package: str) -> str:
    return (
        f"hpcnn: --backend {backend} needs {package}, not installed in this environment: make its environment with "
        f"`bash env/create.sh modern` and start with `bash env/with.sh {backend} hpcnn ...`\n"
    )


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_two_ranks_say_it_once_and_leave_nothing(backend: str, tmp_path: Path) -> None:
    arguments = ["train", "--train", "data/test.csv", "--backend", backend, "--out", str(tmp_path / "out")]
    run = run_ranks(2, [*DRIVER, backend, *arguments])
    assert run.returncode == 1
    said = [line for line in run.stderr.splitlines(keepends=True) if line.startswith("hpcnn: ")]
    assert said == [remedy(backend, backend)]
    assert "Traceback" not in run.stderr
    assert run.left_behind == ()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_one_process_says_that_line_and_nothing_else(backend: str, tmp_path: Path) -> None:
    run = alone(backend, "train", "--train", "data/test.csv", "--backend", backend, "--out", tmp_path / "out")
    assert (run.returncode, run.stdout, run.stderr) == (1, "", remedy(backend, backend))


@pytest.mark.skipif("keras" not in BACKENDS, reason="no Keras among the backends yet")
def test_what_keras_computes_with_is_asked_for_too(tmp_path: Path) -> None:
    rows = ["train", "--train", "data/test.csv", "--backend", "keras", "--out", tmp_path / "out"]
    assert alone("tensorflow", *rows).stderr == remedy("keras", "tensorflow")
    assert alone("jax", *rows, "--keras-backend", "jax").stderr == remedy("keras", "jax")
    assert alone("keras,torch", *rows, "--keras-backend", "torch").stderr == remedy("keras", "keras, torch")


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_the_list_of_backends_says_which_is_missing_and_what_brings_it(backend: str) -> None:
    run = alone(backend, "backends")
    assert (run.returncode, run.stderr) == (0, "")
    states = {line.split()[0]: line for line in run.stdout.splitlines() if not line.startswith(" ")}
    assert set(states) == set(BACKENDS)
    for name, line in states.items():
        if backend in (name, *BACKENDS[name].requires) or (name, backend) == ("keras", "tensorflow"):
            assert f"missing {backend}: bash env/create.sh modern, then bash env/with.sh {name}" in line
        else:
            assert line.split()[1] == "ready"
    # Its switches are told all the same: a run file may be written where another environment is.
    assert all(f"[backend.{name}]" in run.stdout for name in BACKENDS)
