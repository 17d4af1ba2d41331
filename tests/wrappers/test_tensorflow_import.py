"""TensorFlow comes alone and in silence, whatever was imported before it and whatever is imported after."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.mpi import SETTINGS, RankRun, run_session

pytestmark = pytest.mark.needs("tensorflow")

SUM = "assert float(tf.reduce_sum(tf.ones((2, 3)))) == 6.0"
OURS = "from hpcnn.wrappers.tensorflow_import import import_tensorflow\ntf = import_tensorflow()"


def python(*lines: str, path: Path | None = None) -> RankRun:
    """A fresh Python that runs `lines`, modules of `path` before all others."""
    where = {} if path is None else {"PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    return run_session([sys.executable, "-c", "import os, sys\n" + "\n".join(lines)], env={**SETTINGS, **where})


def silent(*lines: str) -> None:
    run = python(*lines)
    assert (run.returncode, run.stderr) == (0, "")


def test_it_works_in_silence_and_brings_neither_keras_nor_jax() -> None:
    guests = "assert not [name for name in sys.modules if name.partition('.')[0] in ('keras', 'jax')]"
    silent(OURS, SUM, guests, "assert import_tensorflow() is tf", "import tensorflow", "assert tensorflow is tf")


@pytest.mark.needs("keras")
def test_keras_can_be_imported_afterwards_and_works() -> None:
    silent(
        OURS,
        "import keras",
        "model = keras.Sequential([keras.layers.Dense(3, kernel_initializer='ones')])",
        "assert keras.backend.backend() == 'tensorflow'",
        "assert model(tf.ones((2, 4))).numpy().tolist() == [[4.0] * 3] * 2",
    )


@pytest.mark.needs("keras")
@pytest.mark.parametrize("before", ["tensorflow", "keras"])
def test_what_was_imported_before_it_stays_and_works(before: str) -> None:
    run = python(
        f"import {before}",
        f"kept = sys.modules[{before!r}]",
        OURS,
        "from hpcnn.wrappers.registry import open_backend",
        "open_backend('tensorflow', threads=1)",
        SUM,
        f"assert sys.modules[{before!r}] is kept",
        "import keras",
        "assert keras.layers.Dense(3)(tf.ones((2, 4))).shape == (2, 3)",
    )
    assert run.returncode == 0, run.stderr


def test_an_import_that_fails_gives_its_error_and_bars_nothing_for_good(tmp_path: Path) -> None:
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('libfancy.so.7: cannot open shared object file')")
    for name in ("keras", "jax"):
        (tmp_path / f"{name}.py").write_text("")
    run = python(
        "from hpcnn.wrappers.tensorflow_import import import_tensorflow",
        "try:\n    import_tensorflow()\nexcept ImportError as error:\n    print(error)",
        "import keras, jax",
        "assert 'tensorflow' not in sys.modules",
        path=tmp_path,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "libfancy.so.7: cannot open shared object file\n"


def test_what_is_said_during_the_import_comes_through_but_for_the_greetings(tmp_path: Path) -> None:
    package = tmp_path / "tensorflow"
    package.mkdir()
    greetings = (
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 port.cc:153] oneDNN custom operations are on. You may see slightly different numerical results",
        "To enable the following instructions: AVX2, in other operations, rebuild TensorFlow with the flags.",
    )
    words = (*greetings, "E0000 a fault that a person must hear of", "no newline behind this")
    writes = "\n".join(f"os.write(2, {(word + chr(10)).encode()!r})" for word in words[:-1])
    (package / "__init__.py").write_text(f"import os\n{writes}\nos.write(2, {words[-1].encode()!r})")
    run = python(OURS, "os.write(2, b'. then ours')", path=tmp_path)
    assert run.returncode == 0
    assert run.stderr == "E0000 a fault that a person must hear of\nno newline behind this. then ours"


def test_without_a_standard_error_it_is_imported_all_the_same(tmp_path: Path) -> None:
    found = tmp_path / "found"
    lines = f"{OURS}\n{SUM}\nopen({str(found)!r}, 'w').write('done')"
    run_session(["sh", "-c", f'exec "{sys.executable}" -c "$0" 2>&-', lines], env=SETTINGS)
    assert found.read_text() == "done"
