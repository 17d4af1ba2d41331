"""Compiled modules are shared: each is compiled once, whoever comes, and whatever became of others."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.mpi import SETTINGS, end_session, run_session, start_session

pytestmark = pytest.mark.needs("theano", "lasagne")
STEP = """
import sys
from hpcnn.wrappers import theano_store
theano_store.FIRST_WORD = theano_store.NEXT_WORD = 0.0
from hpcnn.network import Flatten
from hpcnn.wrappers.registry import open_backend
from tests.wrappers.probes import assert_answers, build, network, some_rows
segment = network().whole
opened = open_backend("lasagne", threads=1)
opened.segment_class.on_compile = lambda line: print(line, flush=True)
assert_answers(build("lasagne", segment), some_rows(segment, 3))
"""


def started(cache: Path) -> subprocess.Popen[str]:
    settings = {**SETTINGS, "HPCNN_CACHE": str(cache)}
    return start_session([sys.executable, "-c", STEP], settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def leftovers(cache: Path) -> list[str]:
    (folder,) = (cache / "theano").iterdir()
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".so" and path.name != "base")


def test_processes_that_start_together_compile_each_module_once_and_later_ones_none(tmp_path: Path) -> None:
    processes = [started(tmp_path) for _ in range(3)]
    for process in processes:
        out, error = process.communicate(timeout=300)
        assert (process.returncode, error) == (0, "")
        assert "Theano compiles its functions: " in out
        assert f"later starts find them in {tmp_path}" in out
    assert leftovers(tmp_path) == ["base.lock"]
    modules = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.so")}
    run = run_session([sys.executable, "-c", STEP], 300, {**SETTINGS, "HPCNN_CACHE": str(tmp_path)})
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert modules == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.so")}


@pytest.mark.parametrize("sign", ["base.making", "theano/*/making_*"])
def test_a_process_that_is_killed_as_it_compiles_leaves_nothing_to_trip_over(tmp_path: Path, sign: str) -> None:
    process = started(tmp_path)
    while not list(tmp_path.rglob(sign) if "/" not in sign else tmp_path.glob(sign)):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    end_session(process)
    process.communicate()
    run = run_session([sys.executable, "-c", STEP], 300, {**SETTINGS, "HPCNN_CACHE": str(tmp_path)})
    assert (run.returncode, run.stderr) == (0, "")
    assert leftovers(tmp_path) == ["base.lock"]
