"""Cores, threads and GPUs of given ranks: what is too much or too narrow, and the flags that mend it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.cluster.facts import Facts, Threads
from hpcnn.cluster.judge_cores import judge_cores
from hpcnn.cluster.judge_gpus import judge_gpus
from tests.cluster.made_facts import cores, rank

USABLE = st.sets(st.integers(0, 7), min_size=1).map(sorted).map(tuple)
RANKS = st.lists(
    st.builds(cores, st.integers(1, 8), USABLE, st.sampled_from(["n1", "n2"]), st.just(8)), min_size=1, max_size=6
)


def test_ranks_with_room_are_told_as_they_are() -> None:
    all_of_it, halves = (0, 1, 2, 3), [(0, 1), (2, 3)]
    (unbound,) = judge_cores([cores(2, all_of_it)] * 2)
    assert unbound.what == "2 ranks x 2 threads on 4 cores of 4 of n1, not bound (threads from --threads)"
    (bound,) = judge_cores([cores(2, half) for half in halves])
    assert bound.what == "2 ranks x 2 threads on 4 cores of 4 of n1, bound to 2 cores each (threads from --threads)"
    (together,) = judge_cores([cores(1, (0, 1))] * 2)
    assert together.what == "2 ranks x 1 thread on 2 cores of 4 of n1, bound together (threads from --threads)"
    assert {unbound.level, bound.level, together.level} == {"ok"}


def test_too_many_threads_are_a_warning_with_the_number_that_fits() -> None:
    (found,) = judge_cores([cores(4, (0, 1, 2, 3))] * 2)
    assert (found.level, found.what) == ("warning", "2 ranks x 4 threads on n1, which has 4 cores")
    assert found.remedy == "--threads 2 (or OMP_NUM_THREADS=2)"


def test_too_many_ranks_are_a_warning_with_the_number_that_fits() -> None:
    (found,) = judge_cores([cores(1, (0, 1))] * 3 + [cores(2, (0, 1))])
    assert found.what == "4 ranks of 5 threads on n1, which may use 2 cores"
    assert found.remedy.endswith("at most 2 ranks on n1")


def test_ranks_that_the_launcher_bound_are_told_how_to_get_more() -> None:
    (found,) = judge_cores([cores(2, (0,)), cores(2, (1,))])
    assert found.what == "2 ranks x 2 threads on n1, which may use 2 cores"
    assert found.remedy.startswith("let them use more of its 4: mpirun --bind-to none, srun --cpus-per-task=2")


def test_a_rank_that_is_bound_narrower_than_its_threads_is_told_though_the_host_has_room() -> None:
    (found,) = judge_cores([cores(2, (0, 1, 2)), cores(2, (3,))])
    assert found.what == "rank 1 is bound to 1 core of n1, and takes 2 threads"
    assert "mpirun --bind-to none (or --map-by slot:PE=2), srun --cpus-per-task=2; or --threads 1" in found.remedy


def test_imports_that_narrow_the_ranks_themselves_are_told_with_what_binds() -> None:
    narrowed = rank(cores=(0, 1, 2, 3), cores_now=(0,), binding={"KMP_AFFINITY": "compact"})
    (found,) = judge_cores([rank(), narrowed])
    assert found.what == "importing MPI and NumPy narrows rank 1 on n1 from 4 cores to 1"
    assert found.remedy == "unset KMP_AFFINITY, and bind by the launcher"


def test_threads_that_would_be_refused_are_an_error_with_the_words() -> None:
    words = "OMP_NUM_THREADS='many' is no number of at least 1: mend it or give --threads"
    (found,) = judge_cores([rank(), rank(threads=Threads(error=words))])
    assert (found.level, found.what) == ("error", f"rank 1: {words}")


@given(RANKS)
def test_a_host_is_warned_of_where_a_thread_finds_no_core_and_nowhere_else(ranks: list[Facts]) -> None:
    found = judge_cores(ranks)
    wrong = []
    for host in dict.fromkeys(facts.place.host for facts in ranks):
        here = [facts for facts in ranks if facts.place.host == host]
        usable = set().union(*(facts.cores for facts in here))
        crowded = sum(facts.threads.count for facts in here) > len(usable)
        wrong.append(crowded or any(facts.threads.count > len(facts.cores) for facts in here))
    assert [finding.level == "warning" for finding in found] == wrong
    assert all(finding.why and finding.remedy for finding in found if finding.level == "warning")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_ranks_that_share_a_gpu_are_an_error_where_gpus_are_meant(device: str) -> None:
    (found,) = judge_gpus([rank(gpus=("GPU-a",))] * 4, device)
    assert found.level == ("error" if device == "cuda" else "warning")
    assert found.what == "4 ranks on n1 see 1 GPU between them"
    assert found.remedy.startswith("start one rank a GPU")


def test_ranks_with_a_gpu_each_are_well_by_turns_or_as_slurm_gave_them() -> None:
    (turns,) = judge_gpus([rank(gpus=("GPU-a", "GPU-b"))] * 2, "cuda")
    by_host = "; MPI does not read their memory: the host's is used for sums"
    assert (turns.level, turns.what) == ("ok", f"2 GPUs for 2 ranks: GPU-a, GPU-b on rank 0{by_host}")
    (given_each,) = judge_gpus([rank(gpus=("GPU-a",)), rank(gpus=("GPU-b",)), rank("n2", gpus=("GPU-c",))], "cuda")
    assert (given_each.level, given_each.what) == ("ok", f"3 GPUs for 3 ranks: GPU-a on rank 0{by_host}")
    (aware,) = judge_gpus([rank(gpus=("GPU-a",), mpi_reads_gpus=True)], "cuda")
    assert aware.what == "1 GPU for 1 rank: GPU-a on rank 0; MPI reads their memory"


def test_a_rank_that_sees_no_gpu_is_named_and_without_any_a_training_on_cpus_is_well() -> None:
    (found,) = judge_gpus([rank(gpus=("GPU-a",)), rank("n2")], "cuda")
    assert (found.level, found.what) == ("error", "rank 1 on n2 sees no GPU")
    assert judge_gpus([rank(), rank()])[0].level == "ok"
    assert judge_gpus([rank(), rank()], "cuda")[0].what == "ranks 0, 1 on n1 see no GPU"
