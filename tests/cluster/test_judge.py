"""What the doctor makes of given facts: MPI's library, the launch, versions, clocks, and what is installed."""

from __future__ import annotations

import pytest

from hpcnn.cluster.facts import Imported
from hpcnn.cluster.findings import Finding, worst
from hpcnn.cluster.judge import alike, judge_clocks, judge_launch, judge_mpi, judge_versions
from hpcnn.cluster.judge_installed import judge_backend, judge_horovod, judge_sessions
from tests.cluster.made_facts import PREFIX, WELL, rank

OTHER = "/usr/lib/x86_64-linux-gnu/libmpi.so.40"


def only(findings: list[Finding], level: str) -> Finding:
    (finding,) = findings
    assert finding.level == level, finding
    assert bool(finding.why) == (level != "ok")
    assert bool(finding.remedy) == (level != "ok")
    return finding


def test_ranks_are_grouped_by_what_they_have() -> None:
    assert alike(["a", "b", "a"]) == {"a": [0, 2], "b": [1]}


def test_one_library_is_told_by_name_and_path() -> None:
    assert only(judge_mpi([WELL, WELL]), "ok").what == f"Open MPI v5.0.11, loaded from {PREFIX}/lib/libmpi.so.40"


def test_two_libraries_in_one_process_are_an_error_but_not_two_files_of_one_folder() -> None:
    both = rank(libraries=(f"{PREFIX}/lib/libmpi.so.40", OTHER))
    found = only(judge_mpi([WELL, both]), "error")
    assert found.what.startswith("rank 1 loaded several MPI libraries: ")
    assert only(judge_mpi([rank(libraries=(f"{PREFIX}/lib/libmpi.so.40", f"{PREFIX}/lib/libmpi_mpifh.so"))]), "ok")


def test_libraries_that_differ_between_ranks_are_told_with_the_ranks() -> None:
    found = only(judge_mpi([WELL, rank("n2", mpi="Open MPI v4.1.4"), WELL]), "error")
    assert found.what == (
        "MPI libraries differ: Open MPI v5.0.11, package: Open MPI on ranks 0, 2, Open MPI v4.1.4 on rank 1"
    )


@pytest.mark.parametrize(
    ("mpirun", "library", "levels"),
    [
        ("/usr/bin/mpirun.openmpi", OTHER, ["ok"]),
        ("/usr/bin/hydra_pmi_proxy", "/usr/lib/x86_64-linux-gnu/libmpich.so.12", ["ok"]),
        ("", OTHER, ["ok"]),
        ("/usr/bin/mpirun.openmpi", f"{PREFIX}/lib/libmpi.so.40", ["ok", "warning"]),
        ("/usr/bin/mpirun", "/usr/local/lib/libmpi.so.40", ["ok", "warning"]),
        (f"{PREFIX}/bin/prterun", OTHER, ["ok", "warning"]),
    ],
)
def test_mpirun_and_the_library_ought_to_be_of_one_installation(mpirun: str, library: str, levels: list[str]) -> None:
    found = judge_mpi([rank(mpirun=mpirun, libraries=(library,))])
    assert [finding.level for finding in found] == levels
    if len(found) > 1:
        assert mpirun in found[1].what
        assert library in found[1].what


def test_the_launch_is_told_with_its_hosts_and_who_promised_it() -> None:
    ranks = [rank(variables={"OMPI_COMM_WORLD_SIZE": "3"}), rank("n2", "prted"), rank("n2", "prted")]
    assert only(judge_launch(ranks), "ok").what == "3 ranks, as OMPI_COMM_WORLD_SIZE says, on n1 (1), n2 (2)"
    assert "1 process, no launcher" in only(judge_launch([rank(launcher="")]), "ok").what


def test_an_allocation_that_is_used_in_part_is_warned_of() -> None:
    found = only(judge_launch([rank(variables={"SLURM_NTASKS": "4", "OMPI_COMM_WORLD_SIZE": "1"})]), "warning")
    assert found.what == "1 rank in an allocation of 4 tasks, on n1"
    assert "-n 4" in found.remedy


def test_the_launch_has_what_a_start_would_be_refused_for() -> None:
    found = judge_launch([rank(variables={"PMI_SIZE": "4"})])
    assert only(found, "error").what == "PMI_SIZE promises 4 processes, but MPI sees 1"


def test_versions_that_differ_are_errors_each_with_its_ranks() -> None:
    other = rank("n2", versions={**WELL.versions, "numpy": "1.26.4"}, code="ffffffffffff")
    numpy, code = judge_versions([WELL, other, other])
    assert numpy.what == "numpy differs: 2.4.6 on rank 0, 1.26.4 on ranks 1, 2"
    assert code.what == "hpcnn's own modules differ: 0123456789ab on rank 0, ffffffffffff on ranks 1, 2"
    assert worst([numpy, code]) == "error"
    without = {name: version for name, version in WELL.versions.items() if name != "torch"}
    assert only(judge_versions([WELL, rank(versions=without)]), "error").what.endswith("none on rank 1")


def test_versions_that_agree_are_told_and_processors_that_do_not_are_a_warning() -> None:
    assert only(judge_versions([WELL, WELL]), "ok").what.endswith("torch 2.13.0+cpu, on all ranks")
    assert only(judge_versions([WELL, rank("n2", processor="Another")]), "warning").what.startswith("processors differ")


@pytest.mark.parametrize(("ahead", "level", "words"), [(0.2, "ok", "ahead of"), (-30.0, "warning", "30 s behind")])
def test_the_clock_that_is_farthest_off_is_told(ahead: float, level: str, words: str) -> None:
    found = only(judge_clocks([WELL, rank("n2", ahead=ahead), rank("n3", ahead=0.001)]), level)
    assert "n2" in found.what
    assert words in found.what
    assert judge_clocks([WELL, rank(ahead=0.0)]) == []


def test_a_backend_that_does_not_load_or_takes_cores_away_is_told_with_what_binds() -> None:
    assert only(judge_backend([rank(imported=Imported("torch", (0, 1), (0, 1)))]), "ok")
    assert judge_backend([WELL]) == []
    failed = only(judge_backend([rank(imported=Imported("torch", error="ImportError: libgomp.so.1"))]), "error")
    assert failed.what == "torch does not load on n1: ImportError: libgomp.so.1"
    bound = rank(imported=Imported("torch", (0, 1), (0,)), binding={"OMP_PROC_BIND": "true"})
    found = only(judge_backend([bound]), "warning")
    assert found.what == "importing torch on n1 narrows the process from 2 cores to 1"
    assert found.remedy.startswith("unset OMP_PROC_BIND (OMP_PROC_BIND=true)")


@pytest.mark.parametrize(
    ("built", "installed", "level"),
    [
        ({"torch": "2.13.0+cpu"}, {"torch": "2.13.0+cpu"}, "ok"),
        ({"torch": "2.13.0+cpu"}, {"torch": "2.13.0"}, "ok"),
        ({"torch": "2.13.0+cpu"}, {"torch": "2.14.0"}, "warning"),
        ({"torch": "2.13.0+cpu"}, {"torch": "2.13.0+cu126"}, "warning"),
        ({"tensorflow": "2.20.0"}, {"tensorflow-cpu": "2.21.0"}, "warning"),
        ({"tensorflow": "2.20.0"}, {}, "ok"),
        ({}, {"torch": "2.13.0"}, "ok"),
    ],
)
def test_horovods_bindings_are_held_against_what_is_installed(
    built: dict[str, str], installed: dict[str, str], level: str
) -> None:
    found = only(judge_horovod([rank(horovod="horovod 0.28.1", horovod_for=built, versions=installed)]), level)
    assert found.what.startswith("horovod 0.28.1")


def test_horovod_need_not_be_there() -> None:
    assert only(judge_horovod([WELL]), "ok").what.startswith("not installed")


def test_folders_of_killed_mpiruns_are_told_once_a_host_with_what_removes_them() -> None:
    few, many = ("/tmp/ompi.7", "/tmp/ompi.8"), tuple(f"/tmp/ompi.{number}" for number in range(10, 15))
    first, second = judge_sessions([rank(stale=few), rank(stale=few), rank("n2", stale=many)])
    assert first.what == "2 folders of killed mpiruns on n1: /tmp/ompi.7 /tmp/ompi.8"
    assert first.remedy == "rm -r /tmp/ompi.7 /tmp/ompi.8"
    assert second.what == "5 folders of killed mpiruns on n2: /tmp/ompi.10 /tmp/ompi.11 /tmp/ompi.12 and 2 more"
    assert "for f in /tmp/ompi.*; do [ -e /proc/${f##*.} ] || rm -r $f; done" in second.remedy
    assert only(judge_sessions([WELL]), "ok")
