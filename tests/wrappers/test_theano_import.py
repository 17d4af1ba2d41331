"""Theano comes with our flags beside the user's, in silence, and says what is missing in one line."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcnn.errors import BackendError
from hpcnn.wrappers.theano_import import set_theano_up
from tests.support.disk import mounted
from tests.support.mpi import SETTINGS, RankRun, run_session

NEEDS_THEANO = pytest.mark.needs("theano", "lasagne")
CACHE = os.environ.get("HPCNN_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "hpcnn")
OPEN = """
import json, os, sys
from hpcnn.errors import BackendError
from hpcnn.wrappers.registry import open_backend
try:
    open_backend({backend!r}, {options!r}, threads={threads})
except BackendError as error:
    sys.exit(str(error))
"""
STEP = """
from tests.wrappers.probes import DEEP, assert_answers, build, some_rows
assert_answers(build({backend!r}, DEEP.whole), some_rows(DEEP.whole, 3))
"""


def opened(
    *lines: str,
    backend: str = "lasagne",
    options: dict[str, Any] | None = None,
    threads: int = 1,
    timeout: float = 300,
    **variables: str,
) -> RankRun:
    """A fresh Python that opens a backend and then runs `lines`; it ends with the refusal, if there is one."""
    code = OPEN.format(backend=backend, options=options or {}, threads=threads) + "\n".join(lines)
    return run_session([sys.executable, "-c", code], timeout, {**SETTINGS, "HPCNN_CACHE": CACHE, **variables})


def printed(*lines: str, **settings: Any) -> Any:
    """What it prints last, as JSON, having said nothing else."""
    run = opened(*lines, **settings)
    assert (run.returncode, run.stderr) == (0, "")
    return json.loads(run.stdout)


def refusal(*lines: str, **settings: Any) -> str:
    run = opened(*lines, **settings)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    return run.stderr.strip()


@NEEDS_THEANO
def test_it_comes_in_silence_and_starts_no_mpi() -> None:
    found = printed("print(json.dumps(sorted({'mpi4py', 'theano', 'keras', 'lasagne'} & set(sys.modules))))")
    assert found == ["lasagne", "theano"]


@NEEDS_THEANO
def test_flags_of_the_run_file_hold_over_those_of_the_environment_and_ours_are_added() -> None:
    given = "linker=vm, cycle_detection=fast,openmp_elemwise_minsize=123"
    names = ["linker", "cycle_detection", "openmp_elemwise_minsize", "floatX", "device"]
    found = printed(
        "import theano",
        f"print(json.dumps([getattr(theano.config, name) for name in {names!r}]))",
        options={"theano_flags": "linker=cvm"},
        THEANO_FLAGS=given,
    )
    assert found == ["cvm", "fast", 123, "float32", "cpu"]


@NEEDS_THEANO
def test_settings_in_the_home_directory_are_not_read(tmp_path: Path) -> None:
    (tmp_path / ".theanorc").write_text("[global]\nfloatX = float64\nlinker = vm\n")
    (tmp_path / ".keras").mkdir()
    other = {"floatx": "float16", "image_data_format": "channels_first", "backend": "numpy"}
    (tmp_path / ".keras" / "keras.json").write_text(json.dumps(other))
    show = "import theano; print(json.dumps([theano.config.floatX, theano.config.linker]))"
    assert printed(show, HOME=str(tmp_path)) == ["float32", "cvm"]
    keras = {"backend": "keras", "options": {"backend": "theano"}}
    asked = "import keras; K = keras.backend; print(json.dumps([K.floatx(), K.image_data_format(), K.backend()]))"
    assert printed(asked, HOME=str(tmp_path), **keras) == ["float32", "channels_last", "theano"]
    assert printed(asked, HOME=os.devnull, **keras) == ["float32", "channels_last", "theano"]


@NEEDS_THEANO
@pytest.mark.parametrize("threads", [1, 3])
def test_its_libraries_use_as_many_threads_as_asked(threads: int) -> None:
    count = "from hpcnn.wrappers.theano_import import theano_facts; facts = theano_facts()"
    library = "import ctypes; used = ctypes.CDLL('libopenblas.so.0').openblas_get_num_threads()"
    assert printed(count, library, "print(json.dumps([facts['threads'], used]))", threads=threads) == [threads] * 2


@NEEDS_THEANO
@pytest.mark.parametrize(
    ("threads", "asked", "shared"),
    [(1, "", False), (2, "", True), (2, "openmp=False", False), (1, "openmp=True", True)],
)
def test_convolutions_are_shared_among_threads_where_there_are_several(threads: int, asked: str, shared: bool) -> None:
    say = "from hpcnn.wrappers.theano_import import theano_facts; print(json.dumps(theano_facts()['openmp']))"
    assert printed(say, threads=threads, options={"theano_flags": asked}) is shared


@NEEDS_THEANO
def test_other_flags_are_refused_once_it_runs() -> None:
    again = "open_backend('lasagne', {'theano_flags': 'linker=vm'}, threads=1)"
    run = opened(f"try:\n    {again}\nexcept BackendError as error:\n    sys.exit(str(error))")
    assert run.stderr == (
        "Theano runs in this process already, with THEANO_FLAGS='', not 'linker=vm': start another process\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("floatX=float64", "THEANO_FLAGS floatX=float64: this suite computes with floatX=float32: leave floatX out"),
        ("device=cuda", "THEANO_FLAGS device=cuda: this suite computes with device=cpu: leave device out"),
        ("openmp", "THEANO_FLAGS: 'openmp' is no KEY=VALUE: write it so, or leave it out"),
        ("=3", "THEANO_FLAGS: '=' is no KEY=VALUE: write it so, or leave it out"),
        ("optimizer='fast", 'THEANO_FLAGS "optimizer=\'fast": No closing quotation: mend its quotation marks'),
        ("linker=py", "THEANO_FLAGS linker=py: this suite runs on C code alone: leave linker out"),
        (
            "mode=FAST_COMPILE",
            "THEANO_FLAGS mode=FAST_COMPILE: this suite runs on C code alone: leave mode out",
        ),
    ],
)
def test_flags_that_cannot_be_are_refused(flags: str, message: str) -> None:
    with pytest.raises(BackendError) as refused:
        set_theano_up(flags, None)
    assert str(refused.value) == message


@pytest.mark.needs("torch")  # the environment whose NumPy is newer
def test_another_numpy_is_refused() -> None:
    with pytest.raises(BackendError, match=r"needs NumPy below 1\.24, .* has .*`bash env/create\.sh classic`"):
        set_theano_up("", None)


@NEEDS_THEANO
def test_without_a_compiler_it_is_refused(tmp_path: Path) -> None:
    message = refusal(PATH=str(tmp_path))
    assert message.startswith("there is no g++, with which Theano compiles each function: install it or load it")
    assert "there is no no_such_compiler" in refusal(options={"theano_flags": "cxx=no_such_compiler"})


@NEEDS_THEANO
def test_without_openblas_it_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("hiding a library needs root")
    ctypes.CDLL("libopenblas.so.0")
    with open("/proc/self/maps", encoding="utf-8") as stream:
        paths = {os.path.realpath(line.split()[-1]) for line in stream if "libopenblas" in line and ".libs" not in line}
    hide = " && ".join(f"mount --bind /dev/null {path}" for path in paths)
    code = OPEN.format(backend="lasagne", options={}, threads=1)
    command = ["unshare", "-m", "sh", "-c", f'{hide} && exec "{sys.executable}" -c "$0"', code]
    run = run_session(command, env={**SETTINGS, "HPCNN_CACHE": CACHE})
    assert run.stderr == (
        "Theano cannot compile: there is no libopenblas: install it or load it (apt-get install libopenblas-dev)\n"
    )


@NEEDS_THEANO
def test_a_library_that_is_not_there_is_named_as_functions_are_compiled(tmp_path: Path) -> None:
    run = opened(
        f"try:\n    exec({STEP.format(backend='lasagne')!r})\nexcept BackendError as error:\n    sys.exit(str(error))",
        THEANO_FLAGS="blas.ldflags=-lopenblas -lno_such_library",
        TMPDIR=str(tmp_path),
    )
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert "cannot find -lno_such_library" in run.stderr
    assert run.stdout == ""
    assert not list(tmp_path.iterdir())  # Theano leaves a report of each failure


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "disk", "1500k")


@NEEDS_THEANO
def test_a_full_and_a_read_only_disk_are_named(small_disk: Path) -> None:
    step = (
        f"try:\n    exec({STEP.format(backend='lasagne')!r})\nexcept BackendError as error:\n    sys.exit(str(error))"
    )
    own = {"HPCNN_CACHE": str(small_disk)}
    assert "is full: make room, or set HPCNN_CACHE to a folder on another disk" in refusal(step, **own)
    folder = next((small_disk / "theano").iterdir())
    assert not [path for path in folder.iterdir() if path.name.startswith("making_")]
    shutil.rmtree(folder / "base")
    filler = small_disk / "filler"
    with open(filler, "wb", buffering=0) as stream:
        room = os.statvfs(small_disk)
        stream.write(bytes(room.f_bavail * room.f_bsize))
    assert "is full: make room" in refusal(step, **own)
    assert not (folder / "base").exists()
    shutil.rmtree(small_disk / "theano")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert "is read-only: set HPCNN_CACHE to a folder that can be written to" in refusal(step, **own)
