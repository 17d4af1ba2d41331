"""The README's jobs and jobs/data_parallel.slurm, run by a real Slurm on four virtual nodes: in both shapes, by both
launchers (the README's by mpirun)."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import CLONE, Cluster, Job

SCRIPT = "jobs/data_parallel.slurm"
SMALL = ("--epochs", "1", "--global-batch", "50")
ROWS = 200
"""Of the fixture's data/train.csv."""
COMMANDS = [
    line for line in (CLONE / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("sbatch ")
]


def the_only_run(folder: Path) -> Path:
    (record,) = folder.glob("results/*/run.json")
    return record.parent


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def hosts_of(cluster: Cluster, job: Job) -> set[str]:
    return set(cluster.command("scontrol", "show", "hostnames", job.fields["NodeList"]).split())


def assert_complete(cluster: Cluster, folder: Path, job: Job, nodes: int) -> dict[str, Any]:
    """A job of four ranks has left its files, from every node; returns its run.json."""
    assert job.state == "COMPLETED", str(job)  # whole, where pytest would shorten what it shows of a Job
    assert (folder / f"{job.fields['JobName']}-{job.number}.out").exists()
    run = the_only_run(folder)
    assert f"results: {run.relative_to(folder)}" in job.output or f"results: {run}" in job.output, job
    manifest: dict[str, Any] = json.loads((run / "run.json").read_text())
    assert manifest["state"] == "completed"

    epochs, batch = (manifest["config"][name] for name in ("epochs", "global_batch"))
    ends = [*range(batch, ROWS, batch), ROWS]
    steps = [row for row in table(run / "loss.csv") if row["train_loss"]]
    assert [int(row["samples"]) for row in steps] == [epoch * ROWS + end for epoch in range(epochs) for end in ends]
    places = {(int(row["rank"]), row["host"]) for row in table(run / "timing.csv")}
    assert sorted(rank for rank, _ in places) == list(range(manifest["ranks"]))
    assert {host for _, host in places} == hosts_of(cluster, job)
    assert len(hosts_of(cluster, job)) == nodes
    stages = {"pipeline": manifest["ranks"], "hybrid": 2}.get(manifest["config"]["strategy"], 1)
    assert {one["stage"] for one in manifest["stages"]} == set(range(stages))
    return manifest


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 4), (4, 1)])
def test_four_ranks_of_srun_complete_and_leave_their_files(
    cluster: Cluster, submit_folder: Path, nodes: int, tasks: int
) -> None:
    shape = (f"--nodes={nodes}", f"--ntasks-per-node={tasks}")
    job = cluster.run(submit_folder, *shape, SCRIPT, *SMALL, HPCNN_LAUNCHER="srun")
    assert assert_complete(cluster, submit_folder, job, nodes)["ranks"] == 4


def test_the_readme_has_jobs_of_both_shapes() -> None:
    assert sum(SCRIPT in command for command in COMMANDS) == 2
    assert f"sbatch {SCRIPT}" in COMMANDS
    assert any("--nodes=4 --ntasks-per-node=1" in command for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_job_of_the_readme_completes_as_it_stands_there(cluster: Cluster, submit_folder: Path, command: str) -> None:
    job = cluster.run(submit_folder, *shlex.split(command)[1:])
    manifest = assert_complete(cluster, submit_folder, job, int(job.fields["NumNodes"]))
    assert manifest["ranks"] == 4


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
