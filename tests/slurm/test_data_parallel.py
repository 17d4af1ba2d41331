"""jobs/data_parallel.slurm, run by a real Slurm on four virtual nodes: four ranks in both shapes, by both launchers."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import pytest

from tests.slurm.cluster import CLONE, Cluster, Job

SCRIPT = "jobs/data_parallel.slurm"
SMALL = ("--epochs", "1", "--global-batch", "50")


def the_only_run(folder: Path) -> Path:
    (record,) = folder.glob("results/*/run.json")
    return record.parent


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def hosts_of(cluster: Cluster, job: Job) -> set[str]:
    return set(cluster.command("scontrol", "show", "hostnames", job.fields["NodeList"]).split())


@pytest.mark.parametrize("launcher", ["mpirun", "srun"])
@pytest.mark.parametrize(("nodes", "tasks"), [(1, 4), (4, 1)])
def test_four_ranks_complete_and_leave_their_files(
    cluster: Cluster, submit_folder: Path, launcher: str, nodes: int, tasks: int
) -> None:
    shape = (f"--nodes={nodes}", f"--ntasks-per-node={tasks}")
    job = cluster.run(submit_folder, *shape, SCRIPT, *SMALL, HPCNN_LAUNCHER=launcher)

    assert job.state == "COMPLETED", job
    assert (submit_folder / f"hpcnn-data-{job.number}.out").exists()
    run = the_only_run(submit_folder)
    assert f"results: {run.relative_to(submit_folder)}" in job.output or f"results: {run}" in job.output, job
    assert json.loads((run / "run.json").read_text())["state"] == "completed"

    steps = [row for row in table(run / "loss.csv") if row["train_loss"]]
    assert [int(row["samples"]) for row in steps] == [50, 100, 150, 200]  # 200 rows in global batches of 50
    places = {(int(row["rank"]), row["host"]) for row in table(run / "timing.csv")}
    assert sorted(rank for rank, _ in places) == [0, 1, 2, 3]
    assert {host for _, host in places} == hosts_of(cluster, job)
    assert len(hosts_of(cluster, job)) == nodes


def test_the_readmes_jobs_complete_as_they_stand_there(cluster: Cluster, submit_folder: Path) -> None:
    readme = (CLONE / "README.md").read_text(encoding="utf-8")
    commands = [line for line in readme.splitlines() if line.startswith("sbatch ")]
    assert len(commands) == 2
    for command in commands:  # on the 200 rows of the fixture's data/train.csv
        job = cluster.run(submit_folder, *shlex.split(command)[1:])
        assert job.state == "COMPLETED", job
    assert len(list(submit_folder.glob("results/*/run.json"))) == 2


def test_singletons_under_the_wrong_pmi_are_refused_and_the_job_fails(cluster: Cluster, submit_folder: Path) -> None:
    job = cluster.run(submit_folder, SCRIPT, *SMALL, HPCNN_LAUNCHER="srun", HPCNN_SRUN_MPI="pmi2")

    assert job.state == "FAILED", job
    refusals = [line for line in job.output.splitlines() if "promises 4 processes" in line]
    assert len(refusals) == 1, job  # said by one of the four alone
    assert "srun --mpi=pmix" in refusals[0], job
    assert "Traceback" not in job.output, job
    assert not (submit_folder / "results").exists(), job


def test_a_missing_file_fails_the_job_with_one_line(cluster: Cluster, submit_folder: Path) -> None:
    job = cluster.run(submit_folder, SCRIPT, *SMALL, "--train", "data/absent.csv")

    assert job.state == "FAILED", job
    assert len([line for line in job.output.splitlines() if "data/absent.csv" in line]) == 1, job
    assert "Traceback" not in job.output, job


def test_a_job_submitted_from_elsewhere_says_where_to_submit(cluster: Cluster, submit_folder: Path) -> None:
    job = cluster.run(submit_folder / "data", f"../{SCRIPT}")

    assert job.state == "FAILED", job
    assert "is not the top of a clone of hpcnn (no env/with.sh): submit from there" in job.output
    assert len(job.output.splitlines()) == 1, job


def test_an_unknown_launcher_is_refused_with_the_known_ones(cluster: Cluster, submit_folder: Path) -> None:
    job = cluster.run(submit_folder, SCRIPT, HPCNN_LAUNCHER="aprun")

    assert job.state == "FAILED", job
    assert job.output == "HPCNN_LAUNCHER=aprun is unknown; known: mpirun (the default), srun\n"


def test_what_site_sh_exports_reaches_the_job(cluster: Cluster, submit_folder: Path) -> None:
    site = (submit_folder / "env/site.sh").read_text()
    mine = site.replace("# export SBATCH_PARTITION=batch", "export SBATCH_PARTITION=other")
    mine = mine.replace("# export SBATCH_ACCOUNT=", "export SBATCH_ACCOUNT=")
    (submit_folder / "site.sh").write_text(mine)
    command = f"source ./site.sh && sbatch --parsable --hold {SCRIPT}"
    number = cluster.command("bash", "-euc", command, folder=submit_folder).strip()

    fields = cluster.fields(number)
    cluster.command("scancel", number)
    assert (fields["Partition"], fields["Account"]) == ("other", "my_project")
