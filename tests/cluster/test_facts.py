"""What a rank gathers of itself is real: libraries, code, leftovers, the clock, a backend in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcnn.cluster.facts import Imported, Threads, clock_ahead, code_digest, gather_facts, local_rank, stale_sessions
from hpcnn.cluster.imports import Loading
from tests.support.mpi import REPOSITORY
from tests.support.pool import on_ranks, results

PACKAGE = REPOSITORY / "hpcnn"


def gathered(comm: Any) -> Any:
    return gather_facts(os.environ, tuple(sorted(os.sched_getaffinity(0))), Threads(), clock_ahead(comm), None)


def test_ranks_of_mpirun_tell_the_library_that_runs_and_the_mpirun_above_them() -> None:
    first, second = results(on_ranks(2, gathered))
    assert first.mpi.startswith("Open MPI v")
    (library,) = {str(Path(path).parent) for path in first.libraries}
    assert Path(library) == Path(sys.prefix, "lib")
    assert Path(first.mpirun) == Path(sys.prefix, "bin", "prterun")
    assert first.place.launcher == "prterun"
    assert first.code == second.code
    assert first.versions["numpy"]
    assert first.cores == first.cores_now
    assert first.ahead == 0.0
    assert abs(second.ahead) < 0.1  # of one clock


def test_a_module_that_differs_changes_the_digest_and_a_compiled_one_does_not(tmp_path: Path) -> None:
    for clone in ("a", "b"):
        shutil.copytree(PACKAGE / "cluster", tmp_path / clone, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "b" / "__pycache__").mkdir()
    (tmp_path / "b" / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert code_digest(tmp_path / "a") == code_digest(tmp_path / "b")
    with (tmp_path / "b" / "doctor.py").open("a") as module:
        module.write("\n")
    assert code_digest(tmp_path / "a") != code_digest(tmp_path / "b")


def test_folders_of_mpiruns_that_are_no_more_are_found_and_no_others(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    for name in (f"ompi.{dead.pid}", f"ompi.{os.getpid()}", "ompi.host.0", "other.1"):
        (tmp_path / name).mkdir()
    assert stale_sessions(tmp_path) == [tmp_path / f"ompi.{dead.pid}"]
    assert stale_sessions(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("environ", "number"),
    [
        ({}, None),
        ({"SLURM_LOCALID": "3"}, 3),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "SLURM_LOCALID": "0"}, 1),
        ({"MPI_LOCALRANKID": "2", "SLURM_LOCALID": "0"}, 2),
    ],
)
def test_the_nearest_launcher_numbers_the_ranks_of_a_host(environ: dict[str, str], number: int | None) -> None:
    assert local_rank(environ) == number


def test_a_backend_that_loads_is_told_with_the_cores_that_it_leaves() -> None:
    here = tuple(sorted(os.sched_getaffinity(0)))
    assert Loading("simulated", {}, 1).result() == Imported("simulated", here, here)


def test_a_backend_that_does_not_load_gives_its_last_words_and_one_that_hangs_is_ended() -> None:
    assert Loading("fortran", {}, 1).result().error.startswith("BackendError: --backend 'fortran' is unknown: ")
    hangs = Loading("simulated", {}, 1)
    assert hangs.result(seconds=0.0).error == "not loaded within 0 s"
    hangs.end()


@pytest.mark.needs("torch")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="of one core nothing can be taken away")
def test_an_openmp_library_that_binds_its_process_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    found = Loading("torch", {}, 1).result()
    assert found.error == ""
    assert (len(found.before), len(found.after)) == (len(os.sched_getaffinity(0)), 1)
