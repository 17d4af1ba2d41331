"""env/with.sh: the right environment around a command, or one line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.env.classic import require_classic

CLONE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ready(tmp_path_factory, small_machine_type):
    """A machine whose environment is made, shared by the tests of this module, none of which changes it."""
    machine = small_machine_type(tmp_path_factory.mktemp("ready"))
    machine.add_python()
    assert machine.run("create.sh")[0] == 0
    return machine


def variables_seen(machine, **given: str) -> dict[str, str]:
    status, out, err = machine.run("with.sh", "torch", "env", **given)
    assert (status, err) == (0, "")
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)


def test_an_unknown_backend_lists_the_known(machine) -> None:
    line = machine.refusal("with.sh", "jax", "true")
    assert line == "env: unknown backend 'jax'; known: torch, tensorflow, keras, lasagne, keras-theano, caffe"


def test_backends_of_one_recipe_share_its_environment(ready) -> None:
    for backend in ("torch", "tensorflow", "keras"):
        _, out, _ = ready.run("with.sh", backend, "printenv", "VIRTUAL_ENV")
        assert [Path(out.strip())] == ready.environments()


def test_the_backend_is_hpcnns_default_there_whatever_it_was_before(ready) -> None:
    for backend in ("torch", "tensorflow", "keras"):
        _, out, _ = ready.run("with.sh", backend, "printenv", "HPCNN_BACKEND", HPCNN_BACKEND="caffe")
        assert out == f"{backend}\n"


def test_keras_on_theano_is_told_apart_from_keras() -> None:
    require_classic()
    for word in ("theano", "keras-theano"):
        command = ["bash", "env/with.sh", word, "printenv", "HPCNN_BACKEND"]
        assert subprocess.run(command, cwd=CLONE, capture_output=True, text=True).stdout == "keras-theano\n"


def test_a_backend_without_a_command_is_a_usage_error(machine) -> None:
    assert machine.refusal("with.sh", "torch").startswith("env: usage: bash env/with.sh BACKEND COMMAND")


def test_an_environment_that_is_not_made_names_the_command_that_makes_it(machine) -> None:
    machine.add_python()
    assert machine.refusal("with.sh", "torch", "true").endswith("run  bash env/create.sh modern")
    assert not machine.root.exists()


def test_the_command_runs_in_the_environment_with_this_clone(ready) -> None:
    seen = variables_seen(ready, PYTHONHOME="/nowhere", PYTHONPATH="/nowhere")
    (made,) = ready.environments()
    assert seen["PATH"].split(":")[:2] == [str(CLONE / "env/bin"), str(made / "bin")]
    assert seen["PYTHONPATH"] == str(CLONE)
    assert "PYTHONHOME" not in seen
    program = "import hpcnn, tinypin; print(hpcnn.__file__, tinypin.__file__)"
    _, out, _ = ready.run("with.sh", "torch", "python", "-c", program)
    package, pin = out.split()
    assert package == str(CLONE / "hpcnn/__init__.py")
    assert Path(pin).is_relative_to(made)


def test_a_command_has_a_home_even_where_a_job_has_none(ready) -> None:
    seen = variables_seen(ready, HOME="", HPCNN_ENV_ROOT=str(ready.root))
    assert Path(seen["HOME"]).is_dir()


def test_hpcnn_is_that_of_the_clone_whatever_lies_in_the_current_folder(ready) -> None:
    (ready.folder / "hpcnn.py").write_text("print('the wrong one')")
    status, out, _ = ready.run("with.sh", "torch", "hpcnn", "--help")
    assert status == 0
    assert "the wrong one" not in out
    assert "train" in out


def test_a_nested_call_finds_the_same_environment(ready) -> None:
    status, out, err = ready.run("with.sh", "torch", "bash", str(CLONE / "env/create.sh"))
    assert (status, err) == (0, "")
    assert out.startswith("env: using ")


def test_the_status_of_the_command_is_passed_on(ready) -> None:
    assert ready.run("with.sh", "torch", "bash", "-c", "exit 7")[0] == 7


def test_a_command_that_does_not_exist_is_one_line(ready) -> None:
    assert "no command 'mpirum'" in ready.refusal("with.sh", "torch", "mpirum")


@pytest.mark.parametrize("uid", [0, 1000])
def test_open_mpi_is_let_run_as_root_for_root_alone(ready, uid: int) -> None:
    first = ready.folder / f"uid-{uid}"
    first.mkdir()
    (first / "id").write_text(f"#!/bin/sh\necho {uid}\n")
    (first / "id").chmod(0o755)
    seen = variables_seen(ready, PATH=f"{first}:{ready.bin}")
    allowed = [name for name in seen if name.startswith("OMPI_ALLOW_RUN_AS_ROOT")]
    assert len(allowed) == (2 if uid == 0 else 0)


def test_an_environment_whose_python_is_gone_is_not_used(machine) -> None:
    machine.add_python()
    assert machine.run("create.sh")[0] == 0
    (made,) = machine.environments()
    for link in (made / "bin").glob("python*"):
        link.unlink()
    os.symlink("/nowhere/python3", made / "bin/python")
    assert "isn't made yet" in machine.refusal("with.sh", "torch", "true")
    assert machine.run("create.sh")[0] == 0
    assert machine.run("with.sh", "torch", "python", "-c", "import tinypin")[0] == 0
