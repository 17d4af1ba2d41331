"""What a start is refused for, of given places and on real ranks: one line, said once, with the way to launch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.cluster.launch import place_of
from hpcnn.cluster.preflight import (
    Place,
    ancestors,
    cpus_per_node,
    crowded_finding,
    nearest_launcher,
    nested_finding,
    start_findings,
)
from tests.support.mpi import run_ranks

TRAIN = ["-m", "hpcnn", "train", "--train", "data/test.csv", "--out", "/nonexistent", "--backend", "simulated"]
STEP = {"SLURM_STEP_ID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"}


def places(*hosts: str, launcher: str = "prterun", **variables: str) -> list[Place]:
    return [Place(host, launcher, variables) for host in hosts]


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("4", [4]), ("4(x2)", [4, 4]), ("4(x2),2", [4, 4, 2]), ("16,8(x3)", [16, 8, 8, 8]), ("", []), ("many", [])],
)
def test_slurms_list_of_cpus_is_read_and_nothing_made_of_what_is_none(text: str, cpus: list[int]) -> None:
    assert cpus_per_node(text) == cpus


@given(st.lists(st.tuples(st.integers(1, 128), st.integers(1, 5)), min_size=1, max_size=4))
def test_any_list_of_cpus_comes_back(runs: list[tuple[int, int]]) -> None:
    text = ",".join(f"{cpus}(x{times})" if times > 1 else str(cpus) for cpus, times in runs)
    assert cpus_per_node(text) == [cpus for cpus, times in runs for _ in range(times)]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_ranks_are_too_many_where_one_of_them_finds_no_cpu_left(cpus: list[int], hosts: list[str]) -> None:
    found = crowded_finding(places(*hosts, SLURM_JOB_CPUS_PER_NODE=",".join(map(str, cpus))))
    most = max(hosts.count(host) for host in hosts)
    assert (found is not None) == (len(hosts) > sum(cpus) or most > max(cpus))
    assert found is None or (found.level, found.about) == ("error", "launch")


def test_too_many_ranks_are_told_with_both_numbers_and_how_many_fit() -> None:
    (in_all,) = start_findings(places("n1", "n1", "n2", SLURM_JOB_CPUS_PER_NODE="1(x2)"), "data")
    assert in_all.line.startswith("3 ranks, but the job has 2 CPUs: ")
    assert "mpirun -np 2" in in_all.remedy
    (on_one,) = start_findings(places("n1", "n1", "n1", SLURM_JOB_CPUS_PER_NODE="2(x2)"), "data")
    assert on_one.line.startswith("3 ranks on n1, but the job has 2 CPUs of a node: ")
    assert "at most 2 a node" in on_one.remedy
    assert "--ntasks-per-node=3" in on_one.remedy


def test_mpirun_in_one_of_several_tasks_is_refused_and_in_a_shells_one_task_or_of_its_own_daemons_is_not() -> None:
    found = nested_finding(places("n1", "n1", SLURM_STEP_NUM_TASKS="4"))
    assert found is not None
    assert found.line.startswith("mpirun runs inside an srun of 4 tasks: 4 trainings of 2 ranks each would run")
    assert "mpirun -np 2 hpcnn" in found.remedy
    assert "srun --mpi=pmix --ntasks=2 hpcnn" in found.remedy
    assert nested_finding(places("n1", "n1", SLURM_STEP_NUM_TASKS="1")) is None
    assert nested_finding(places("n1", "n1", SLURM_NTASKS="4")) is None
    assert nested_finding(places("n2", "n1", launcher="prted", SLURM_STEP_NUM_TASKS="2")) is None
    assert nested_finding(places("n1", "n1", launcher="slurmstepd", SLURM_STEP_NUM_TASKS="2")) is None


def test_a_start_without_a_launcher_has_nothing_against_it() -> None:
    assert start_findings([Place("n1")], "data") == []


def test_every_rank_comes_to_the_same_also_where_a_variable_is_of_one_host_alone() -> None:
    mixed = [Place("n1", "prterun", {"OMPI_COMM_WORLD_SIZE": "2"}), Place("n2", "prted", {"PMI_SIZE": "4"})]
    (found,) = start_findings(mixed, "data")
    assert found.line == "PMI_SIZE promises 4 processes, but MPI sees 2; use one launcher, not one inside another"


def write_process(proc: Path, pid: int, name: str, above: int) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {above} {pid} {pid} 0 -1 0\n", encoding="utf-8")


def test_the_nearest_launcher_above_a_process_is_found_by_its_name(tmp_path: Path) -> None:
    chain = [(90, "python"), (80, "a (b) c"), (70, "prterun"), (60, "slurmstepd"), (1, "init")]
    for (pid, name), (above, _) in zip(chain, [*chain[1:], (0, "")], strict=True):
        write_process(tmp_path, pid, name, above)
    assert list(ancestors(90, tmp_path)) == chain[:-1]
    assert nearest_launcher(ancestors(90, tmp_path)) == (70, "prterun")
    assert nearest_launcher(ancestors(60, tmp_path)) == (60, "slurmstepd")
    assert nearest_launcher(ancestors(4711, tmp_path)) == (0, "")


def test_the_processes_above_this_one_are_real() -> None:
    found = [pid for pid, _ in ancestors(os.getpid())]
    assert found[:2] == [os.getpid(), os.getppid()]
    assert place_of({"SLURM_PROCID": "3", "HOME": "/root"}).variables == {"SLURM_PROCID": "3"}


def refusals(ranks: int, **environ: str) -> list[str]:
    """Ours of a start on real ranks."""
    run = run_ranks(ranks, TRAIN, env=environ)
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.left_behind == ()
    return [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ") or "Traceback" in line]


def test_ranks_of_mpirun_inside_an_srun_are_refused_by_the_first_mpirun_alone() -> None:
    (line,) = refusals(2, **STEP, SLURM_PROCID="0")
    assert line.startswith("hpcnn: mpirun runs inside an srun of 2 tasks: 2 trainings of 2 ranks each would run")
    assert refusals(2, **STEP, SLURM_PROCID="1") == []


def test_more_ranks_than_the_job_has_cpus_are_refused_on_real_ranks() -> None:
    (line,) = refusals(3, SLURM_JOB_CPUS_PER_NODE="2")
    assert line.startswith("hpcnn: 3 ranks, but the job has 2 CPUs: ")
