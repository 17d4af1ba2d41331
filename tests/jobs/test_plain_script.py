"""The plain scripts by themselves; that their arithmetic is ours is tested in tests/parity/test_plain_*.py."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from tests.support.kept import QUICK_XLA, THEANO
from tests.support.mpi import REPOSITORY, run_session

PLAIN = REPOSITORY / "jobs" / "plain"
FRAMEWORKS = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow",),
    "keras": ("keras", "tensorflow"),
    "keras_theano": ("keras", "theano"),
    "lasagne": ("lasagne", "theano"),
    "caffe": ("caffe",),
}
"""What each script needs, by the script's name; first what it says the version of."""
TUNINGS = [
    pytest.param(
        name, tuning, over, marks=pytest.mark.needs(*FRAMEWORKS[name], *over), id="-".join((name, *over, *tuning))
    )
    for name, tuning, *over in (
        ("torch", ()),
        ("torch", ("--tuned",)),
        ("torch", ("--tuned", "allocator")),
        ("torch", ("--tuned", "channels_last")),
        ("tensorflow", ()),
        ("tensorflow", ("--tuned",)),
        ("tensorflow", ("--xla",)),
        ("tensorflow", ("--tuned", "epoch_function", "--inter-op", "2")),
        ("keras", (), "torch"),
        ("keras", ("--tuned",), "tensorflow"),
        ("keras", ("--tuned",), "jax"),
        ("keras_theano", ()),
        ("lasagne", ("--tuned",)),
        ("caffe", ()),
        ("caffe", ("--tuned",)),
    )
]


def imported_by(path: Path) -> set[str]:
    """Top-level names of the modules that a script imports anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return {name.split(".")[0] for name in imported}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_it_imports_its_framework_and_nothing_of_ours(framework: str) -> None:
    imported = imported_by(PLAIN / f"{framework}_script.py")
    assert FRAMEWORKS[framework][0] in imported
    assert "hpcnn" not in imported | imported_by(PLAIN / "common.py")


def test_what_the_scripts_share_knows_no_framework_and_tensorflow_no_keras() -> None:
    assert not imported_by(PLAIN / "common.py") & {*FRAMEWORKS, "theano", "jax"}
    assert "keras" not in imported_by(PLAIN / "tensorflow_script.py")


@pytest.mark.parametrize(("framework", "tuning", "over"), TUNINGS)
def test_it_learns_and_leaves_its_settings_and_times(
    train: Path, tmp_path: Path, framework: str, tuning: tuple[str, ...], over: list[str]
) -> None:
    """`over`: the Keras backend that the environment names."""
    out, script, rows = tmp_path / "found.json", PLAIN / f"{framework}_script.py", rows_of(train)
    flags = ["--train", str(train), "--test", str(train), "--epochs", "3", "--batch", "10", "--threads", "1"]
    env = {**THEANO, **QUICK_XLA, **({"KERAS_BACKEND": over[0]} if over else {})}
    run = run_session([sys.executable, str(script), *flags, *tuning, "--json", str(out)], timeout=600, env=env)
    assert run.returncode == 0, run.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found[FRAMEWORKS[framework][0]]
    assert (found["rows"], found["ranks"], found["threads"], found["settings"]["batch"]) == (rows, 1, 1, 10)
    assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2, 3]
    assert all(epoch["rows_per_second"] == rows / epoch["seconds"] for epoch in found["epochs"])
    assert found["epochs"][-1]["loss"] < found["epochs"][0]["loss"]
    assert found["test_accuracy"] > 0.3  # chance is 0.1
    assert not over or [found["keras_backend"]] == over


def rows_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines()) - 1


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_options_are_parsed_by_what_the_scripts_share(framework: str) -> None:
    tree = ast.parse((PLAIN / f"{framework}_script.py").read_text(encoding="utf-8"))
    calls = [node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert calls.count("parse") == 1
    assert not any(isinstance(node, ast.FunctionDef) and node.name == "parse" for node in ast.walk(tree))


@pytest.mark.parametrize(
    "framework", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("torch", "caffe")]
)
def test_a_replay_without_a_place_for_its_results_is_refused(train: Path, framework: str) -> None:
    script = [sys.executable, str(PLAIN / f"{framework}_script.py")]
    run = run_session([*script, "--train", str(train), "--replay", "some.npz"])
    assert run.returncode == 2
    assert "--replay and --out belong together" in run.stderr
