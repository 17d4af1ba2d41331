"""What sbatch's refusals mean: one line with the remedy, of words that differ little between versions of Slurm."""

from __future__ import annotations

import re

from hpcnn.errors import LaunchError

_PARTITION = "name one, of those that sinfo lists: --partition=NAME, or SBATCH_PARTITION in env/site.sh"
_ACCOUNT = (
    "name yours, of those that `sacctmgr show associations user=$USER format=account,partition` lists: "
    "--account=NAME, or SBATCH_ACCOUNT in env/site.sh"
)
_SMALLER = "ask for what `sinfo -N -l` shows: fewer --nodes, --ntasks-per-node or --cpus-per-task"

_SUMMARIES = ("Requested node configuration is not available", "Invalid partition name specified")
"""Of what a line before says more of."""
_REMEDIES = (
    (r"No partition specified or system default partition", f"this cluster has no default partition: {_PARTITION}"),
    (r"[Ii]nvalid partition", _PARTITION),
    (r"not permitted to use this partition|Requested nodes not in this partition", _PARTITION),
    (r"Required partition not available|Partition in DOWN state", f"it takes no jobs now; {_PARTITION}"),
    (r"[Ii]nvalid account|account/partition combination|doesn't have a default account|must (?:use|specify) .*account",
     _ACCOUNT),
    (r"[Ii]nvalid qos", "name one of yours: --qos=NAME, or SBATCH_QOS in env/site.sh"),
    (r"violates accounting/QOS policy", "ask for less: --time, --nodes, or wait until jobs of yours have ended"),
    (r"Requested time limit is invalid", "give one that the partition allows (sinfo -o '%P %l'): --time=HH:MM:SS"),
    (r"Memory (?:specification|required)", "ask for less memory: --mem-per-cpu, or SBATCH_MEM_PER_CPU in env/site.sh"),
    (r"node configuration is not available|Node count specification invalid|CPU count specification invalid|"
     r"CPU count per node can not be satisfied|More processors requested", _SMALLER),
    (r"[Ii]nvalid generic resource", "name GPUs as `sinfo -o '%P %G'` does: --gpus-per-task, or --gres"),
    (r"[Ii]nvalid feature", "name one of `sinfo -o '%P %f'`: --constraint, or SBATCH_CONSTRAINT in env/site.sh"),
    (r"Access/permission denied|Invalid user id", "is this account known to the cluster? ask its administrators"),
    (r"Unable to contact slurm controller|Could not establish a configuration source|DNS SRV lookup failed",
     "is this a login node of the cluster? SLURM_CONF names its slurm.conf"),
)  # fmt: skip


def sbatch_refusal(stderr: str, script: str = "the job") -> LaunchError:
    """One line of sbatch's words and what mends it; `stderr` is what it wrote before it ended in failure."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?:sbatch|srun|salloc): (?:error|fatal): ", line)] or lines
    words = [re.sub(r"^\w+: (?:error|fatal): (?:Batch job submission failed: )?", "", line) for line in errors]
    reason = words[-1] if words else "no word of why"
    if len(words) > 1 and reason in _SUMMARIES:
        reason = words[-2]
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, "\n".join(words)):
            return LaunchError(f"sbatch refuses {script}: {reason}; {remedy}")
    return LaunchError(f"sbatch refuses {script}: {reason}; `hpcnn submit --dry-run` shows what was asked for")
