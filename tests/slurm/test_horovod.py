"""jobs/horovod.slurm, run by a real Slurm across virtual nodes: Horovod's messages between hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.test_data_parallel import hosts_of, table, the_only_run
from tests.support.horovod import NEEDS_HOROVOD

SCRIPT = "jobs/horovod.slurm"
SMALL = ("--epochs", "1", "--global-batch", "50")

pytestmark = NEEDS_HOROVOD


@pytest.mark.parametrize(
    ("shape", "launcher", "flags"),
    [
        (("--nodes=2", "--ntasks-per-node=2"), "mpirun", ()),
        (("--nodes=4", "--ntasks-per-node=1"), "srun", ("--backend", "tensorflow")),
    ],
)
def test_ranks_on_several_nodes_add_by_horovod_and_leave_their_files(
    cluster: Cluster, submit_folder: Path, shape: tuple[str, ...], launcher: str, flags: tuple[str, ...]
) -> None:
    timeline = submit_folder / "timeline.json"
    flags = (*flags, "--reducer-option", f"timeline={timeline}")
    job = cluster.run(submit_folder, *shape, SCRIPT, *SMALL, *flags, HPCNN_LAUNCHER=launcher)

    assert job.state == "COMPLETED", str(job)
    run = the_only_run(submit_folder)
    record = json.loads((run / "run.json").read_text())
    assert (record["state"], record["config"]["reducer"]) == ("completed", "horovod")
    steps = [row for row in table(run / "loss.csv") if row["train_loss"]]
    assert [int(row["samples"]) for row in steps] == [50, 100, 150, 200]
    assert {row["host"] for row in table(run / "timing.csv")} == hosts_of(cluster, job)
    assert len(hosts_of(cluster, job)) > 1
    text = timeline.read_text(encoding="utf-8")
    assert "gradient.segment0" in text
    assert "MPI_ALLREDUCE" in text


def test_what_horovod_cannot_do_fails_the_job_with_one_line(cluster: Cluster, submit_folder: Path) -> None:
    flags = ("--ntasks-per-node=3", SCRIPT, *SMALL, "--reducer-option", "op=adasum")
    job = cluster.run(submit_folder, *flags)
    assert job.state == "FAILED", job
    (line,) = [line for line in job.output.splitlines() if "op=adasum works on 2, 4, 8 ... ranks, not on 3" in line]
    assert line.startswith("hpcnn: "), job
    assert "Traceback" not in job.output, job
