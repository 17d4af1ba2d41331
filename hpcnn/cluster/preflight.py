"""What every start looks at before anything else: judgments of what each rank tells of its place, in one message.

Nothing is measured and nothing imported, so that a start costs what it cost. A training that would be slow is let go
with a warning (hpcnn.training.process); one that would not be what was asked for is refused with the way to launch it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcnn.cluster.findings import Finding, count

VARIABLES = (
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEPID",
    "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_JOB_CPUS_PER_NODE",
)  # fmt: skip
PROMISES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
"""Who says how many processes there are, the nearest to the process first."""
MPIRUN = {"mpirun", "mpiexec", "prterun", "orterun", "mpiexec.hydra"}
MPIRUN_AND_DAEMONS = MPIRUN | {"prted", "orted", "hydra_pmi_proxy"}
LAUNCHERS = MPIRUN_AND_DAEMONS | {"slurmstepd"}


@dataclass(frozen=True)
class Place:
    """Of one rank: its host, the nearest launcher above its process ("" where none is known), and `VARIABLES`."""

    host: str
    launcher: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


def ancestors(pid: int, proc: Path = Path("/proc")) -> Iterator[tuple[int, str]]:
    """Number and name of each process above `pid`, as far as this one may see."""
    while pid > 1:
        try:
            # The command's name is in brackets and may hold blanks and brackets.
            before, _, after = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
            pid_above = int(after.split()[1])
            name = before.partition("(")[2]
        except (OSError, ValueError, IndexError):
            return
        yield pid, name
        pid = pid_above


def nearest_launcher(names: Iterator[tuple[int, str]]) -> tuple[int, str]:
    """Of `ancestors`; (0, "") where there is none."""
    return next(((pid, name) for pid, name in names if name in LAUNCHERS), (0, ""))


def promised_size(environ: Mapping[str, str]) -> tuple[int, str] | None:
    """(processes that the launcher says it started, the variable that says so), or None where none speaks.

    mpirun's and PMI's own variables count before SLURM's, since mpirun inside an allocation may start fewer.
    SLURM_NTASKS alone belongs to a step of srun's (SLURM_STEP_ID), or to a job script that called hpcnn without a
    launcher.
    """
    for name in PROMISES:
        text = environ.get(name, "")
        if text.isdigit():
            return int(text), name
    return None


def size_finding(environ: Mapping[str, str], size: int, strategy: str) -> Finding | None:
    """N singletons, or one launcher inside another of another number; None where `size` is what was promised.

    One process of strategy `single`, called from a job script without a launcher, is what it looks like and passes.
    """
    promise = promised_size(environ)
    if promise is None or promise[0] == size:
        return None
    promised, name = promise
    in_step = "SLURM_STEP_ID" in environ or "SLURM_STEPID" in environ
    if name == "SLURM_NTASKS" and not in_step and size == 1 and strategy == "single":
        return None
    what = f"{name} promises {promised} processes, but MPI sees {size}"
    if size == 1:
        return Finding(
            "error", "launch", what, f"{promised} processes would each train alone",
            "start with mpirun, or with srun --mpi=pmix, of the MPI that this environment loads",
        )  # fmt: skip
    return Finding("error", "launch", what, remedy="use one launcher, not one inside another")


def nested_finding(places: Sequence[Place]) -> Finding | None:
    """mpirun inside an srun of several tasks: each of these starts a whole world, of the size that it was told.

    By rank 0, whose mpirun is above it. The daemons that mpirun starts on other nodes by srun are tasks of such a step,
    too, and all is well; and so it is with mpirun in the one task of an interactive shell.
    """
    first = places[0]
    tasks = first.variables.get("SLURM_STEP_NUM_TASKS", "")
    if first.launcher not in MPIRUN or not tasks.isdigit() or int(tasks) < 2:
        return None
    return Finding(
        "error", "launch", f"mpirun runs inside an srun of {tasks} tasks",
        f"{tasks} trainings of {count(len(places), 'rank')} each would run side by side",
        f"use one launcher: mpirun -np {len(places)} hpcnn …, or srun --mpi=pmix --ntasks={len(places)} hpcnn …",
    )  # fmt: skip


def is_first_of_nested(place: Place) -> bool:
    """Whether this world's mpirun is the srun's first task, which speaks for the others."""
    return place.variables.get("SLURM_PROCID", "0") == "0"


def cpus_per_node(text: str) -> list[int]:
    """Of SLURM_JOB_CPUS_PER_NODE: 4(x2),2 is [4, 4, 2]; nothing of what isn't understood."""
    parts = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part) for part in text.split(",")]
    return [int(part[1]) for part in parts if part for _ in range(int(part[2] or 1))] if all(parts) else []


def crowded_finding(places: Sequence[Place]) -> Finding | None:
    """More ranks than the allocation has CPUs, on a host or in all, as --oversubscribe and --overcommit allow."""
    cpus = cpus_per_node(places[0].variables.get("SLURM_JOB_CPUS_PER_NODE", ""))
    if not cpus:
        return None
    host, ranks = Counter(place.host for place in places).most_common(1)[0]
    if len(places) > sum(cpus):
        what, most = f"{len(places)} ranks, but the job has {count(sum(cpus), 'CPU')}", sum(cpus)
    elif ranks > max(cpus):
        what, most = f"{ranks} ranks on {host}, but the job has {count(max(cpus), 'CPU')} of a node", max(cpus)
    else:
        return None
    where = "in all" if most == sum(cpus) else "a node"
    return Finding(
        "error", "launch", what, "they would wait for each other at every message",
        f"start at most {most} {where} (mpirun -np {most} without --oversubscribe, srun --ntasks={most}), or ask for "
        f"more: sbatch --nodes, --ntasks-per-node={ranks}",
    )  # fmt: skip


def start_findings(places: Sequence[Place], strategy: str) -> list[Finding]:
    """Why these ranks, in the order of ranks, are not to start; nothing where they may. The same on every rank."""
    sizes = (size_finding(place.variables, len(places), strategy) for place in places)
    wrong_size = next(filter(None, sizes), None)
    return [found for found in (wrong_size, nested_finding(places), crowded_finding(places)) if found]
