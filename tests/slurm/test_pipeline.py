"""jobs/pipeline.slurm and jobs/hybrid.slurm, run by a real Slurm across virtual nodes: messages between hosts.

By srun; the README's jobs, in test_data_parallel.py, are those of mpirun, in the shapes of the scripts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.test_data_parallel import SMALL, assert_complete


@pytest.mark.parametrize(
    ("script", "nodes", "flags"),
    [("jobs/pipeline.slurm", 2, ("--schedule", "gpipe")), ("jobs/hybrid.slurm", 4, ())],
)
def test_stages_on_several_nodes_complete_and_leave_their_files(
    cluster: Cluster, submit_folder: Path, script: str, nodes: int, flags: tuple[str, ...]
) -> None:
    shape = (f"--nodes={nodes}", "--ntasks-per-node=1")
    job = cluster.run(submit_folder, *shape, script, *SMALL, *flags, HPCNN_LAUNCHER="srun")
    assert assert_complete(cluster, submit_folder, job, nodes)["ranks"] == nodes
