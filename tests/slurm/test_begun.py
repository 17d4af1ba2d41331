"""Ranks of several nodes wait for each other before their first message also where Slurm's srun starts them."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.test_begun import PROGRAM, WAITED_FOR_THE_LATE_ONE, what_ranks_said
from tests.slurm.cluster import Cluster

JOB = """#!/usr/bin/env bash
#SBATCH --nodes=3 --ntasks-per-node=1 --job-name=begun
srun --mpi=pmix --kill-on-bad-exit=1 bash env/with.sh torch python program.py
"""


def test_ranks_of_srun_wait_for_a_late_one_before_their_first_message(cluster: Cluster, submit_folder: Path) -> None:
    """A fence of Slurm's is none unless it collects data."""
    (submit_folder / "program.py").write_text(PROGRAM)
    (submit_folder / "job.sh").write_text(JOB)
    job = cluster.run(submit_folder, "job.sh")
    assert job.state == "COMPLETED", str(job)
    assert what_ranks_said(job.output) == WAITED_FOR_THE_LATE_ONE
