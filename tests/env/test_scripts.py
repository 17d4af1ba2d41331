"""The shell scripts as text, the list of pins, and the package that setup.py makes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[2]
SCRIPTS = [
    path.relative_to(CLONE)
    for pattern in (".ci/run", "env/*.sh", "env/bin/*", "jobs/**/*.slurm", "tests/**/*.sh", "tests/slurm/cluster-*")
    for path in sorted(CLONE.glob(pattern))
]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_bash_can_read_every_shell_script(script: Path) -> None:
    subprocess.run(["bash", "-n", CLONE / script], check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck isn't installed")
def test_shellcheck_finds_nothing() -> None:
    lint = subprocess.run(["bash", CLONE / "tests/env/lint_shell.sh"], capture_output=True, text=True)
    assert lint.returncode == 0, lint.stdout


def pins() -> dict[str, str]:
    lines = (CLONE / "env/constraints-modern.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_every_pin_is_exact_and_public() -> None:
    for name, version in pins().items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name), name
        assert re.fullmatch(r"\d+(\.\d+)*", version), (name, version)  # no +cpu: such a version isn't on PyPI


def test_every_dependency_of_the_package_and_its_extras_is_pinned() -> None:
    project = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [line for extra in project["optional-dependencies"].values() for line in extra]
    names = {normal(re.match(r"[\w.-]+", line)[0]) for line in wanted}
    assert names - {normal(name) for name in pins()} == set()


def test_the_package_installs_with_its_command(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md"):
        if (CLONE / name).exists():
            shutil.copy(CLONE / name, source)
    shutil.copytree(CLONE / "hpcnn", source / "hpcnn", ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path / "target"
    quiet = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, "--target", target, source], check=True)

    assert (target / "bin/hpcnn").exists()
    assert (target / "hpcnn/py.typed").exists()
    packaged = {path.relative_to(target) for path in target.glob("hpcnn/**/*.py")}
    assert packaged == {path.relative_to(CLONE) for path in CLONE.glob("hpcnn/**/*.py")}
