"""Jobs of studies on a real Slurm: a chain that ends in a verdict, a task of an array, a study that was submitted."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from hpcnn.studies.cells import read_cells
from tests.slurm.cluster import ENDED, Cluster
from tests.slurm.test_data_parallel import hosts_of, table

STUDY = """
repeats = 2
warmup_steps = 1
out = "results/mine"
[run]
train = "data/train.csv"
network = "jobs/small_network.toml"
classes = 10
global_batch = 40
epochs = 1
[matrix]
backend = ["simulated", "torch"]
ranks = 2
rows = 120
[slurm]
ntasks_per_node = 1
"""
LIMIT = 240.0


def ended(cluster: Cluster, number: str) -> dict[str, str]:
    """The fields of a job once it has ended, for whatever it waited before."""
    deadline = time.monotonic() + LIMIT
    while (fields := cluster.fields(number))["JobState"] not in ENDED and time.monotonic() < deadline:
        time.sleep(0.2)
    return fields


@pytest.mark.parametrize(
    ("shape", "launcher", "hosts"), [("--nodes=4 --ntasks-per-node=1", "mpirun", 4), ("--ntasks-per-node=2", "srun", 1)]
)
def test_a_chain_trains_alone_then_on_all_ranks_and_ends_in_the_verdict(
    cluster: Cluster, submit_folder: Path, shape: str, launcher: str, hosts: int
) -> None:
    said = cluster.command(
        "bash", "jobs/baseline_then_compare.slurm", "--epochs", "1", "--test", "data/test.csv", folder=submit_folder,
        HPCNN_SHAPE=shape, HPCNN_LAUNCHER=launcher,
    )  # fmt: skip
    numbers = re.findall(r"job (\d+)", said)
    assert len(numbers) == 3
    verdict = ended(cluster, numbers[2])
    words = Path(verdict["StdOut"]).read_text()
    assert [cluster.fields(number)["JobState"] for number in numbers] == ["COMPLETED"] * 3, words
    assert re.search(r"\b(same|float noise)\b", words)
    (out,) = (submit_folder / "results").iterdir()
    assert f"results: {out.relative_to(submit_folder)}" in said
    runs = {name: json.loads((out / name / "run.json").read_text()) for name in ("one-process", "all-ranks")}
    assert {name: (run["ranks"], run["config"]["strategy"]) for name, run in runs.items()} == {
        "one-process": (1, "single"), "all-ranks": (4 if hosts == 4 else 2, "data"),
    }  # fmt: skip
    assert len({row["host"] for row in table(out / "all-ranks" / "timing.csv")}) == hosts


@pytest.mark.parametrize(
    ("shape", "launcher", "ranks", "hosts"),
    [(("--array=1",), "srun", 2, 1), (("--array=2", "--nodes=4", "--ntasks-per-node=1"), "mpirun", 4, 4)],
)
def test_a_task_of_the_scaling_array_takes_its_ranks_of_the_job(
    cluster: Cluster, submit_folder: Path, shape: tuple[str, ...], launcher: str, ranks: int, hosts: int
) -> None:
    job = cluster.run(submit_folder, *shape, "jobs/scaling_array.slurm", "--epochs", "1", HPCNN_LAUNCHER=launcher)
    assert job.state == "COMPLETED", job
    (run,) = (submit_folder / "results").glob(f"scaling-*/np{ranks}")
    facts = json.loads((run / "run.json").read_text())
    assert (facts["state"], facts["ranks"]) == ("completed", ranks)
    rows = table(run / "timing.csv")
    assert {int(row["rank"]) for row in rows} == set(range(ranks))
    assert len({row["host"] for row in rows}) == hosts
    assert hosts_of(cluster, job) >= {row["host"] for row in rows}


def test_a_submitted_study_is_followed_across_nodes_to_its_report(cluster: Cluster, submit_folder: Path) -> None:
    (submit_folder / "mine.toml").write_text(STUDY)
    hpcnn = ("bash", "env/with.sh", "torch", "hpcnn", "study")
    said = cluster.command(*hpcnn, "submit", "mine.toml", folder=submit_folder)
    (number,) = re.findall(r"^(\d+): sbatch --job-name=mine-np2 --array=0,1 --nodes=2", said, re.MULTILINE)
    (report,) = re.findall(r"^(\d+): sbatch --job-name=mine-report ", said, re.MULTILINE)
    status = cluster.command(*hpcnn, "status", "mine.toml", folder=submit_folder)
    assert re.search(rf"^job {number}_[01]: (pending|running|configuring)", status, re.MULTILINE), status
    tasks = [ended(cluster, f"{number}_{task}") for task in (0, 1)]
    words = "\n".join(Path(task["StdOut"]).read_text() for task in tasks)
    assert [task["JobState"] for task in tasks] == ["COMPLETED"] * 2, words

    out = submit_folder / "results" / "mine"
    cells = read_cells(out)
    assert [cell.state for cell in cells] == ["done"] * 4
    for cell in cells:
        assert len({row["host"] for row in table(out / str(cell.run) / "timing.csv")}) == 2
    made = ended(cluster, report)
    assert made["JobState"] == "COMPLETED", Path(made["StdOut"]).read_text()
    assert len(table(out / "study.csv")) == 4
    assert "<svg" in (out / "report.html").read_text()
    status = cluster.command(*hpcnn, "status", "mine.toml", folder=submit_folder)
    assert "4 cells: 4 done" in status
    assert "no job of it is queued any more" in status
    again = cluster.command(*hpcnn, "submit", "mine.toml", folder=submit_folder)
    assert "0 jobs submitted" in again


def test_a_submission_that_slurm_refuses_is_one_line_with_what_mends_it(cluster: Cluster, submit_folder: Path) -> None:
    words = ["bash", "env/with.sh", "torch", "hpcnn", "submit", "data_parallel", "--partition", "nowhere"]
    run = subprocess.run(words, cwd=submit_folder, env=cluster.environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    (line,) = run.stderr.splitlines()
    assert line.startswith("hpcnn: sbatch refuses jobs/data_parallel.slurm: invalid partition specified: nowhere; ")
    assert "--partition=NAME" in line


def test_ranks_of_a_study_may_be_started_by_srun(cluster: Cluster, submit_folder: Path) -> None:
    study = STUDY.replace("repeats = 2", "repeats = 1").replace('["simulated", "torch"]', '"simulated"')
    (submit_folder / "mine.toml").write_text(study)
    submit = ("bash", "env/with.sh", "torch", "hpcnn", "study", "submit", "mine.toml", "--no-report")
    said = cluster.command(*submit, folder=submit_folder, HPCNN_LAUNCHER="srun")
    (number,) = re.findall(r"^(\d+): sbatch ", said, re.MULTILINE)
    task = ended(cluster, f"{number}_0")
    assert task["JobState"] == "COMPLETED", Path(task["StdOut"]).read_text()
    (cell,) = read_cells(submit_folder / "results" / "mine")
    assert cell.state == "done"
    rows = table(submit_folder / "results" / "mine" / str(cell.run) / "timing.csv")
    assert len({row["host"] for row in rows}) == 2
