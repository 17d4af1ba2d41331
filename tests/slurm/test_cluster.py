"""The virtual cluster itself: its nodes are apart, and it ends with the process that it was started for."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster


def processes_of(root: Path) -> list[str]:
    """Command lines of live processes whose environment or arguments name `root`, this one aside."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(root).encode() in words and int(process.name) != os.getpid():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_each_virtual_node_has_its_own_host_name_and_shared_memory(cluster: Cluster) -> None:
    script = 'touch "/dev/shm/$(hostname)"; sleep 1; echo "$(hostname)" /dev/shm/*'
    lines = cluster.command("srun", "--nodes=4", "sh", "-c", script).splitlines()
    assert sorted(lines) == [f"n{node} /dev/shm/n{node}" for node in (1, 2, 3, 4)]


def test_a_job_that_can_never_run_is_refused_at_once(cluster: Cluster) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        cluster.command("sbatch", "--nodes=5", "--wrap=true")
    assert "Node count specification invalid" in refusal.value.stderr


def test_the_cluster_goes_down_when_its_owner_is_killed(cluster: Cluster, short_root: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        second = Cluster(short_root)
        try:
            second.start(owner=owner.pid)
            second.command("sbatch", "--wrap=sleep 600")
            assert len(processes_of(short_root)) >= 6  # munged, slurmctld and four slurmd
            owner.kill()
            owner.wait()
            end = time.monotonic() + 60
            while (left := processes_of(short_root)) and time.monotonic() < end:
                time.sleep(0.2)
            assert left == []
        finally:
            owner.kill()
            second.stop()
