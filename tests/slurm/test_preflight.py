"""Launches that a real Slurm lets through and a start refuses, the doctor on two nodes, and Slurm's own refusals."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcnn.cluster.refusals import sbatch_refusal
from tests.slurm.cluster import Cluster

JOB = """#!/bin/bash
with="bash env/with.sh torch"
train="hpcnn train --train data/train.csv --epochs 1 --backend simulated"
echo "== nested"
$with srun --nodes=1 --ntasks=2 --overcommit mpirun -np 1 $train
echo "== outside"
srun --ntasks=2 $with mpirun -np 2 $train
echo "status $?"
echo "== crowded"
$with srun --mpi=pmix --nodes=1 --ntasks=2 --overcommit $train
echo "== apart"
$with srun --mpi=pmix hpcnn doctor --backend simulated --threads 1 --out /dev/shm/results --json apart.json
echo "status $?"
echo "== shared"
$with mpirun hpcnn doctor --backend simulated --threads 1 --json shared.json
echo "status $?"
"""


def test_what_slurm_lets_through_is_refused_once_and_the_doctor_knows_what_nodes_share(
    cluster: Cluster, submit_folder: Path
) -> None:
    (submit_folder / "job.sh").write_text(JOB)
    job = cluster.run(submit_folder, "--nodes=2", "--ntasks-per-node=1", "--output=%x-%j.out", "job.sh")
    sections = dict(part.split("\n", 1) for part in job.output.split("== ")[1:])
    ours = {name: [line for line in text.splitlines() if "hpcnn: " in line] for name, text in sections.items()}

    (nested,) = ours["nested"]
    assert nested.startswith("hpcnn: mpirun runs inside an srun of 2 tasks: 2 trainings of 1 rank each"), job
    outside = sections["outside"].splitlines()
    (said,) = [line for line in outside if line.startswith("env: ")]
    assert said.startswith("env: mpirun inside an srun of 2 tasks would start everything 2 times: use one launcher")
    assert outside[-1] == "status 1", job
    (crowded,) = ours["crowded"]
    assert crowded.startswith("hpcnn: 2 ranks on n1, but the job has 1 CPU of a node: "), job
    assert not (submit_folder / "results").exists()

    apart, shared = (json.loads((submit_folder / f"{name}.json").read_text()) for name in ("apart", "shared"))
    assert "status 1" in sections["apart"], job
    (error,) = [finding for finding in apart["findings"] if finding["level"] == "error"]
    assert error["about"] == "folder", error
    assert error["what"].startswith("/dev/shm is not the same folder for all: "), error
    assert "status 0" in sections["shared"], job
    for document in (apart, shared):
        assert {rank["place"]["host"] for rank in document["ranks"]} == {"n1", "n2"}
        told = {finding["about"]: finding["what"] for finding in document["findings"]}
        assert told["launch"].endswith("on n1 (1), n2 (1)")
        assert told["clocks"].startswith("the clock of ")
    assert [finding["what"] for finding in shared["findings"] if finding["about"] == "folder"] == [
        f"{submit_folder} is one folder for 2 ranks on 2 hosts"
    ]
    links = [finding["what"] for finding in shared["findings"] if finding["about"] == "network"]
    assert [link.partition(":")[0] for link in links] == ["ranks 0 and 1 from n1 to n2", "allreduce over 2 ranks"]


@pytest.fixture
def no_default(cluster: Cluster) -> Iterator[None]:
    cluster.command("scontrol", "update", "PartitionName=debug", "Default=NO")
    yield
    cluster.command("scontrol", "update", "PartitionName=debug", "Default=YES")


@pytest.fixture
def closed(cluster: Cluster) -> Iterator[None]:
    """A partition of accounts alone, of which a job that names none has none."""
    cluster.command("scontrol", "update", "PartitionName=other", "AllowAccounts=physics")
    yield
    cluster.command("scontrol", "update", "PartitionName=other", "AllowAccounts=ALL")


def refused(cluster: Cluster, *flags: str) -> str:
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        cluster.command("sbatch", *flags, "--wrap=true")
    return str(sbatch_refusal(refusal.value.stderr))


@pytest.mark.usefixtures("no_default")
def test_a_partition_that_was_not_given_is_told_with_where_to_give_it(cluster: Cluster) -> None:
    line = refused(cluster)
    assert line.startswith("sbatch refuses the job: No partition specified or system default partition; ")
    assert "--partition=NAME, or SBATCH_PARTITION in env/site.sh" in line


@pytest.mark.usefixtures("closed")
def test_an_account_that_was_not_given_is_told_with_where_to_give_it(cluster: Cluster) -> None:
    line = refused(cluster, "--partition=other")
    assert line.startswith("sbatch refuses the job: Invalid account or account/partition combination specified; ")
    assert "--account=NAME, or SBATCH_ACCOUNT in env/site.sh" in line


def test_a_partition_that_is_not_there_and_a_job_that_fits_nowhere_are_told(cluster: Cluster) -> None:
    assert "invalid partition specified: nope; name one, of those that sinfo lists" in refused(cluster, "-p", "nope")
    assert "CPU count per node can not be satisfied; ask for what" in refused(cluster, "--ntasks-per-node=9")
