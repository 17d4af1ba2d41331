"""env/modulefiles/hpcnn, loaded by the real `module` (Environment Modules): hpcnn comes, and goes with unloading."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.env.conftest import CLONE
from tests.env.site import require

INIT = "/usr/share/modules/init/bash"
BEGIN = f'. {INIT} && before=$PATH && module use "{CLONE}/env/modulefiles" && '


@pytest.fixture
def ready(machine):
    """A machine whose environment is made and on which `module` works."""
    require(INIT)
    machine.add_python()
    assert machine.run("create.sh")[0] == 0
    return machine


def shell(machine, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    found = {"PATH": f"{machine.bin}:{os.defpath}", "PYTHON": str(machine.bin / "python3")}
    return subprocess.run(
        ["bash", "-c", BEGIN + script],
        env=machine.variables | found | variables,
        cwd=machine.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_loading_brings_the_hpcnn_of_the_clone_and_unloading_takes_it_away(ready) -> None:
    load = "module load hpcnn && command -v hpcnn python && hpcnn --help"
    use = "python -c 'import hpcnn, tinypin; print(hpcnn)'"
    gone = '[ "$PATH" = "$before" ] && [ -z "${PYTHONPATH-}${HPCNN_ENVIRONMENT-}" ]'
    done = shell(ready, f"{load} && {use} && export HPCNN_MPI=nonsense && module unload hpcnn && {gone}")
    assert (done.returncode, done.stderr) == (0, "")
    (made,) = ready.environments()
    assert done.stdout.split()[:2] == [str(CLONE / "env/bin/hpcnn"), str(made / "bin/python")]
    assert "usage: hpcnn" in done.stdout
    assert str(CLONE / "hpcnn/__init__.py") in done.stdout


def test_without_an_environment_it_is_not_loaded_and_says_the_command(ready, tmp_path: Path) -> None:
    done = shell(ready, "module load hpcnn; command -v hpcnn", HPCNN_ENV_ROOT=str(tmp_path / "elsewhere"))
    assert done.stdout == ""
    assert "run  bash env/create.sh modern" in done.stderr
    assert "Module ERROR" not in done.stderr  # which would be Tcl's own stack


def test_its_help_needs_no_environment(ready, tmp_path: Path) -> None:
    done = shell(ready, "module help hpcnn && module whatis hpcnn", HPCNN_ENV_ROOT=str(tmp_path / "elsewhere"))
    assert done.returncode == 0
    assert "hpcnn --help" in done.stderr
