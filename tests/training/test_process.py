"""Threads are decided, said and obeyed; the allocator's tuning is real: it saves the page faults it is there for."""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from typing import Any

import pytest

from hpcnn.data.agree import Alone
from hpcnn.training.process import TUNED, decide_threads, set_allocator, thread_warning
from tests.support.mpi import FLAGS, SETTINGS, mpirun_path, run_session
from tests.training.process_on_ranks import CASES

RANKS = (1, 2, 4)


@cache
def decisions(ranks: int, bind: str = "none") -> list[dict[str, Any]]:
    """What every rank decided, by case. `bind`: to a core of its own, or none."""
    flags = ["-np", str(ranks), "--bind-to", bind, *(FLAGS if bind == "none" else ())]
    command = [mpirun_path(), *flags, sys.executable, "-m", "tests.training.process_on_ranks"]
    run = run_session(command, env=SETTINGS)
    assert run.returncode == 0, run.stderr
    found: list[dict[str, Any]] = json.loads(run.stdout)
    assert len(found) == ranks
    return found


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("case", ["nothing", "empty variable"])
def test_unasked_the_ranks_of_a_host_share_its_cores_and_each_gets_one_at_least(ranks: int, case: str) -> None:
    cores = len(os.sched_getaffinity(0))
    for rank in decisions(ranks):
        assert len(rank["cores"]) == cores
        assert rank[case]["count"] == max(1, cores // ranks)
        assert rank[case]["source"] == "cores / ranks"
        assert bool(rank[case]["warning"]) == (ranks > cores)


def test_a_rank_that_is_bound_to_cores_of_its_own_has_a_thread_for_each_of_them() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two cores are needed for two ranks of one each")
    found = decisions(2, "core")
    assert not set(found[0]["cores"]) & set(found[1]["cores"])
    for rank in found:
        assert rank["nothing"]["count"] == len(rank["cores"])
        assert rank["nothing"]["warning"] == ""


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(
    ("case", "count", "source"),
    [
        ("variable", 3, "OMP_NUM_THREADS"),
        ("list", 2, "OMP_NUM_THREADS"),
        ("flag", 5, "--threads"),
        ("flag over a wrong variable", 5, "--threads"),
    ],
)
def test_the_flag_counts_before_the_variable(ranks: int, case: str, count: int, source: str) -> None:
    for rank in decisions(ranks):
        assert (rank[case]["count"], rank[case]["source"]) == (count, source)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("case", ["words", "zero", "negative", "fraction", "superscript", "too many"])
def test_a_wrong_variable_is_refused_by_all_ranks_with_its_value(ranks: int, case: str) -> None:
    value = CASES[case][1]["OMP_NUM_THREADS"]
    (message,) = {rank[case]["error"] for rank in decisions(ranks)}
    assert all(rank[case]["agreed"] for rank in decisions(ranks))
    assert value in message
    assert "OMP_NUM_THREADS" in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("ranks", RANKS)
def test_a_variable_that_is_wrong_on_one_rank_alone_is_refused_by_all(ranks: int) -> None:
    (message,) = {rank["one rank"]["error"] for rank in decisions(ranks)}
    assert "'many'" in message


def test_more_threads_than_cores_are_warned_of_with_both_numbers() -> None:
    cores = len(os.sched_getaffinity(0))
    assert decide_threads(cores, {}, Alone()).warning == ""
    warning = decide_threads(cores + 1, {}, Alone()).warning
    assert f"ranks x threads, 1 x {cores + 1}, are more than the cores of" in warning
    assert f", {cores}: they will wait" in warning
    assert "use fewer --threads or ranks" in warning


def test_a_rank_bound_to_fewer_cores_than_its_threads_is_warned_of_though_the_host_has_room() -> None:
    own, other = frozenset({0}), frozenset({1, 2, 3})
    warning = thread_warning(2, "n1", own, [own, other])
    assert warning.startswith("a rank with 2 threads is bound to 1 of the cores of n1, which they share: ")
    assert warning.endswith("mpirun --bind-to none, srun --cpus-per-task=2, or use --threads 1")
    assert thread_warning(2, "n1", other, [own, other]) == ""
    assert thread_warning(1, "n1", own, [own, other]) == ""


def test_ranks_that_were_given_a_part_of_the_host_are_told_how_to_get_more() -> None:
    one = frozenset({0})
    assert (
        f"or give them more of its {os.cpu_count()}: mpirun --bind-to none" in thread_warning(3, "n1", one, [one])
    ) == ((os.cpu_count() or 1) > 1)


def test_the_command_refuses_a_wrong_variable_in_one_line() -> None:
    command = [sys.executable, "-m", "hpcnn", "train", "--train", "data/test.csv", "--out", "/nonexistent/out"]
    run = run_session(command, env={"OMP_NUM_THREADS": "many"})
    assert run.returncode == 2
    assert run.stderr == "hpcnn: OMP_NUM_THREADS='many' is no number of at least 1: mend it or give --threads\n"


OBEYED = """
import ctypes, json, os, sys
import numpy as np
from hpcnn.training.process import set_threads
counts = {}
for count in (3, 1, 2):
    set_threads(count, os.environ)
    for path in {line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line}:
        for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads"):
            if hasattr(ctypes.CDLL(path), name):
                counts[count] = getattr(ctypes.CDLL(path), name)()
import torch
print(json.dumps([counts, torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]]))
"""


@pytest.mark.needs("torch")
def test_numpys_library_and_torch_obey_though_one_was_loaded_before() -> None:
    run = run_session([sys.executable, "-c", OBEYED], env={"OPENBLAS_NUM_THREADS": "", "OMP_NUM_THREADS": ""})
    assert run.returncode == 0, run.stderr
    counts, torch_threads, variable = json.loads(run.stdout)
    if not counts:
        pytest.skip("this NumPy does not stand on OpenBLAS")
    assert counts == {"3": 3, "1": 1, "2": 2}
    assert torch_threads == 2
    assert variable == "2"


FAULTS = """
import resource, sys
import numpy as np
from hpcnn.training.process import set_allocator
said = set_allocator(sys.argv[1])
if sys.argv[2] == "torch":
    import torch
    work = lambda: torch.ones(8 << 20)
else:
    work = lambda: np.ones(8 << 20, np.float32)
for _ in range(20):  # until the heap has the holes that are needed
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(said["kind"], resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=pytest.mark.needs("torch"))])
def test_the_tuned_allocator_keeps_large_blocks_and_so_saves_their_page_faults(library: str) -> None:
    faults = {}
    for kind in ("system", "tuned"):
        run = run_session([sys.executable, "-c", FAULTS, kind, library])
        assert run.returncode == 0, run.stderr
        said, count = run.stdout.split()
        assert said == kind
        faults[kind] = int(count)
    # 20 blocks of 32 MiB: the system's allocator maps each anew, 8192 faults of 4 KiB pages (16 of 2 MiB ones) a time.
    assert faults["system"] >= 20 * 16
    assert faults["tuned"] * 10 < faults["system"], faults


def test_what_the_allocator_is_set_to_is_what_is_reported() -> None:
    # In a process of its own: the setting outlives the call.
    script = "import json; from hpcnn.training.process import set_allocator; print(json.dumps(set_allocator('tuned')))"
    run = run_session([sys.executable, "-c", script])
    assert json.loads(run.stdout) == {"kind": "tuned", **TUNED}
    assert set_allocator("system") == {"kind": "system"}
