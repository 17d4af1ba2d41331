"""sbatch's words, as Slurm 22.05 says them, in one line with what mends them; tests/slurm has Slurm's own."""

from __future__ import annotations

import pytest

from hpcnn.cluster.refusals import sbatch_refusal

FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("stderr", "reason", "remedy"),
    [
        (f"{FAILED}No partition specified or system default partition\n", "No partition specified", "SBATCH_PARTITION"),
        (
            f"sbatch: error: invalid partition specified: gpu\n{FAILED}Invalid partition name specified\n",
            "invalid partition specified: gpu", "--partition=NAME",
        ),
        (f"{FAILED}User's group not permitted to use this partition\n", "User's group not permitted", "sinfo lists"),
        (f"{FAILED}Required partition not available (inactive or drain)\n", "Required partition", "takes no jobs now"),
        (
            f"{FAILED}Invalid account or account/partition combination specified\n",
            "Invalid account or account/partition combination specified", "SBATCH_ACCOUNT in env/site.sh",
        ),
        (f"{FAILED}Invalid qos specification\n", "Invalid qos", "SBATCH_QOS"),
        (f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)\n", "Requested time", "--time"),
        (
            f"sbatch: error: CPU count per node can not be satisfied\n{FAILED}Requested node configuration is not "
            "available\n", "CPU count per node can not be satisfied", "fewer --nodes",
        ),
        (
            f"sbatch: error: Memory specification can not be satisfied\n{FAILED}Requested node configuration is not "
            "available\n", "Memory specification can not be satisfied", "--mem-per-cpu",
        ),
        (f"{FAILED}Node count specification invalid\n", "Node count", "fewer --nodes"),
        ("sbatch: error: Invalid generic resource (gres) specification\n", "Invalid generic resource", "--gres"),
        (f"{FAILED}Invalid feature specification\n", "Invalid feature", "SBATCH_CONSTRAINT"),
        (f"{FAILED}Unable to contact slurm controller (connect failure)\n", "Unable to contact", "login node"),
        ("sbatch: fatal: Could not establish a configuration source\n", "Could not establish", "SLURM_CONF"),
        (f"sbatch: warning: old flag\n{FAILED}Job dependency problem\n", "Job dependency problem", "--dry-run"),
        ("", "no word of why", "--dry-run"),
        ("cannot fork", "cannot fork", "--dry-run"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_with_slurms_reason_and_a_remedy(stderr: str, reason: str, remedy: str) -> None:
    line = str(sbatch_refusal(stderr, "jobs/data_parallel.slurm"))
    assert line.startswith(f"sbatch refuses jobs/data_parallel.slurm: {reason}")
    assert remedy in line
    assert len(line.splitlines()) == 1
