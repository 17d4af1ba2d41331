"""The plain scripts by themselves; that their arithmetic is ours is tested in tests/parity/test_plain_*.py."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from tests.support.mpi import REPOSITORY, run_session

PLAIN = REPOSITORY / "jobs" / "plain"
FRAMEWORKS = ("torch", "tensorflow", "keras")
TUNINGS = [
    ("torch", ()),
    ("torch", ("--tuned",)),
    ("torch", ("--tuned", "allocator")),
    ("torch", ("--tuned", "channels_last")),
    ("tensorflow", ()),
    ("tensorflow", ("--tuned",)),
    ("tensorflow", ("--xla",)),
    ("tensorflow", ("--tuned", "epoch_function", "--inter-op", "2")),
    ("keras", ()),
    ("keras", ("--tuned",)),
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
    assert framework in imported
    assert "hpcnn" not in imported | imported_by(PLAIN / "common.py")


def test_what_the_scripts_share_knows_no_framework_and_tensorflow_no_keras() -> None:
    assert not imported_by(PLAIN / "common.py") & {*FRAMEWORKS, "jax"}
    assert "keras" not in imported_by(PLAIN / "tensorflow_script.py")


@pytest.mark.parametrize(("framework", "tuning"), TUNINGS)
def test_it_learns_and_leaves_its_settings_and_times(
    train: Path, tmp_path: Path, framework: str, tuning: tuple[str, ...]
) -> None:
    out, script, rows = tmp_path / "found.json", PLAIN / f"{framework}_script.py", rows_of(train)
    flags = ["--train", str(train), "--test", str(train), "--epochs", "3", "--batch", "10", "--threads", "1"]
    run = run_session([sys.executable, str(script), *flags, *tuning, "--json", str(out)], timeout=120)
    assert run.returncode == 0, run.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found[framework]
    assert (found["rows"], found["ranks"], found["threads"], found["settings"]["batch"]) == (rows, 1, 1, 10)
    assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2, 3]
    assert all(epoch["rows_per_second"] == rows / epoch["seconds"] for epoch in found["epochs"])
    assert found["epochs"][-1]["loss"] < found["epochs"][0]["loss"]
    assert found["test_accuracy"] > 0.3  # chance is 0.1


def rows_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines()) - 1


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_keras_runs_on_the_backend_that_the_environment_names(train: Path, tmp_path: Path, backend: str) -> None:
    out = tmp_path / "found.json"
    flags = ["--train", str(train), "--epochs", "1", "--batch", "50", "--threads", "1", "--tuned", "--json", str(out)]
    script = [sys.executable, str(PLAIN / "keras_script.py")]
    run = run_session([*script, *flags], timeout=120, env={"KERAS_BACKEND": backend})
    assert run.returncode == 0, run.stderr
    assert json.loads(out.read_text(encoding="utf-8"))["keras_backend"] == backend


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_replay_without_a_place_for_its_results_is_refused(train: Path, framework: str) -> None:
    script = [sys.executable, str(PLAIN / f"{framework}_script.py")]
    run = run_session([*script, "--train", str(train), "--replay", "some.npz"])
    assert run.returncode == 2
    assert "--replay and --out belong together" in run.stderr
