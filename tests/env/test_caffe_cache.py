"""Caffe is compiled once and kept: half-made it is never used, whole it is never compiled again.

The compiler is real and stopped early, so that no test waits for all of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.env.classic import Builder, pinned, require_classic
from tests.env.conftest import CLONE

FEW = pinned("lasagne", "numpy", "setuptools", "wheel", "brocolli-caffe")
LOADS = pinned(
    "brocolli-caffe", "imageio", "lazy-loader", "networkx", "numpy", "packaging", "pillow", "protobuf", "scikit-image",
    "scipy", "setuptools", "six", "tifffile", "wheel",
)  # fmt: skip
"""What Caffe needs to be imported."""
COMPILES = "compiling Caffe, once: 4 to 10 minutes"
NO_INTERNET = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}


@pytest.mark.slow
def test_a_compilation_that_was_killed_or_interrupted_is_not_used(tmp_path: Path) -> None:
    """From a folder of packages, as on a machine without internet; the first compilation finds nothing kept."""
    require_classic()
    builder = Builder(tmp_path, FEW)
    house = tmp_path / "wheel house"
    status, out, err = builder.make("--download", str(house))
    assert (status, err) == (0, "")
    sources = sorted(path.name.lower() for path in house.glob("*.tar.gz"))
    assert sources == ["brocolli-caffe-9.0.2.tar.gz", "lasagne-0.1.tar.gz"]
    builder.variables |= NO_INTERNET

    words = ("--wheelhouse", str(house))
    out, _ = builder.stop_in_the_compiler(builder.start(*words), signal.SIGKILL)
    assert COMPILES in out
    assert not list(builder.root.glob("built/*"))
    refused = ["bash", "env/with.sh", "caffe", "true"]
    assert subprocess.run(refused, cwd=CLONE, env=builder.variables, stderr=subprocess.DEVNULL).returncode == 1

    kept = builder.caffe_folder()
    shutil.copytree(CLONE / "tests/env", kept)  # files, but no mark that they are all
    process = builder.start(*words)
    out, err = builder.stop_in_the_compiler(process, signal.SIGINT)
    assert COMPILES in out
    assert process.returncode == 130
    (line,) = err.splitlines()
    assert line.startswith("env: interrupted; nothing is left of ")
    assert builder.environments() == []
    assert not (kept / "complete").exists()


@pytest.mark.slow
def test_another_environment_uses_the_caffe_that_is_kept(tmp_path: Path) -> None:
    environment = require_classic()
    builder = Builder(tmp_path, LOADS)
    kept = builder.caffe_folder()
    shutil.copytree(next(environment.glob("lib/python3.11/site-packages/caffe")), kept)
    before = {path: path.stat().st_mtime_ns for path in kept.rglob("*")}

    status, out, err = builder.make()
    assert (status, err) == (0, "")
    assert COMPILES not in out
    (made,) = builder.environments()
    (caffe,) = made.glob("lib/python3.11/site-packages/caffe")
    assert not caffe.is_symlink()
    program = "import caffe; print(caffe.__file__)"
    done = subprocess.run([made / "bin/python", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(caffe / "__init__.py")
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*")} == before


def test_another_numpy_or_recipe_is_another_caffe(tmp_path: Path) -> None:
    require_classic()
    builder = Builder(tmp_path, FEW)
    first = builder.caffe_folder()
    builder.pins.write_text(FEW + pinned("tqdm"))
    assert builder.caffe_folder() == first
    builder.pins.write_text(FEW.replace("numpy==1.23.5", "numpy==1.22.4"))
    assert builder.caffe_folder() != first


def test_every_clone_and_folder_finds_the_same_caffe(tmp_path: Path) -> None:
    """The libraries' files are part of the key: of one that isn't found no path is made up from where one stands."""
    require_classic()
    builder = Builder(tmp_path, FEW)
    shutil.copytree(CLONE / "env", tmp_path / "clone/env")
    assert builder.caffe_folder(tmp_path / "clone") == builder.caffe_folder()


def test_a_caffe_that_does_not_load_ends_the_making_of_its_environment(tmp_path: Path) -> None:
    """Say, one that was cut short on a full disk, after its mark was copied."""
    environment = require_classic()
    builder = Builder(tmp_path, FEW)
    kept = builder.caffe_folder()
    shutil.copytree(next(environment.glob("lib/python3.11/site-packages/caffe")), kept)
    os.truncate(kept / "_caffe.so", 4096)
    status, out, err = builder.make()
    assert status == 1
    (line,) = err.splitlines()
    assert f"loading the Caffe of {kept} (remove that folder to have it compiled anew) failed: " in line
    assert COMPILES not in out
    assert builder.environments() == []
