"""Caffe comes alone and in silence, gives way to the whole package later, and says what is wrong in one line."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.mpi import SETTINGS, RankRun, run_session

pytestmark = pytest.mark.needs("caffe")
AGAIN = "make its environment again with `bash env/create.sh classic`"
STEP = """
from tests.wrappers.probes import DEEP, assert_answers, build, some_rows
assert_answers(build("caffe", DEEP.whole), some_rows(DEEP.whole, 3))
"""


def python(*lines: str, path: Path | None = None) -> RankRun:
    """A fresh Python that runs `lines`, modules of `path` before all others."""
    where = {} if path is None else {"PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    return run_session([sys.executable, "-c", "import os, sys\n" + "\n".join(lines)], env={**SETTINGS, **where})


def silent(*lines: str) -> None:
    run = python(*lines)
    assert (run.returncode, run.stderr) == (0, "")


def test_it_works_in_silence_and_brings_neither_scikit_image_nor_protobuf() -> None:
    guests = "{'skimage', 'scipy', 'matplotlib', 'google'} & {name.partition('.')[0] for name in sys.modules}"
    silent(STEP, f"assert not {guests}, {guests}")


def test_the_whole_package_can_be_imported_before_and_after_and_works() -> None:
    use = "assert caffe.Net is sys.modules['caffe._caffe'].Net and caffe.io and caffe.NetSpec"
    silent(STEP, "import caffe", use, STEP)
    silent("os.environ['GLOG_minloglevel'] = '2'", "import caffe", use, STEP, use)


def refusal(path: Path) -> RankRun:
    arguments = ["train", "--train", "data/test.csv", "--backend", "caffe", "--out", str(path / "out")]
    return python(
        f"sys.argv[1:] = {arguments!r}", "from hpcnn.cli import main", "sys.exit(main(sys.argv[1:]))", path=path
    )


def test_a_package_without_its_library_is_half_built(tmp_path: Path) -> None:
    (tmp_path / "caffe").mkdir()
    (tmp_path / "caffe" / "__init__.py").write_text("")
    run = refusal(tmp_path)
    assert run.returncode == 1
    assert run.stderr == (
        "hpcnn: Caffe cannot be loaded: No module named 'caffe._caffe': it is half built, or another package of that "
        f"name: {AGAIN}\n"
    )


@pytest.mark.parametrize(
    ("library", "lost", "command"),
    [
        ("libopenblas.so.0", "libopenblas.so.9", " (Debian, Ubuntu: sudo apt-get install libopenblas-dev)"),
        ("libboost_python", "libboost_pythom", ""),
        ("libboost_filesystem.so.1", "libboost_filesystem.so.0", " (Debian, Ubuntu: sudo apt-get install "
         "libboost-filesystem-dev)"),
    ],
)  # fmt: skip
def test_a_library_that_is_missing_is_named_with_what_brings_it(
    tmp_path: Path, library: str, lost: str, command: str
) -> None:
    spec = importlib.util.find_spec("caffe")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, tmp_path / "caffe")
    built = tmp_path / "caffe" / "_caffe.so"
    content = built.read_bytes()
    assert library.encode() in content
    built.write_bytes(content.replace(library.encode(), lost.encode()))  # a name that the loader will not find
    run = refusal(tmp_path)
    assert run.returncode == 1
    assert run.stderr.startswith(f"hpcnn: Caffe cannot be loaded: {lost}")
    assert run.stderr.endswith(f": install or load what brings that library{command}, or {AGAIN}\n")
    assert run.stderr.count("\n") == 1


def test_what_loads_but_not_with_this_numpy_is_named(tmp_path: Path) -> None:
    (tmp_path / "caffe").mkdir()
    (tmp_path / "caffe" / "__init__.py").write_text("")
    (tmp_path / "caffe" / "_caffe.py").write_text("raise ImportError('numpy.core.multiarray failed\\nto import')")
    run = refusal(tmp_path)
    assert run.stderr.startswith("hpcnn: Caffe cannot be loaded: numpy.core.multiarray failed to import: ")
