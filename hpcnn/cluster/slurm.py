"""Slurm's commands as far as the suite calls them: sbatch, and squeue for what became of it."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcnn.cluster.refusals import sbatch_refusal
from hpcnn.errors import LaunchError
from hpcnn.records.files import write_json
from hpcnn.records.state import read_json

SUBMITTED = "submitted.json"
SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a job asks for. None or "": what its script or the site says."""

    nodes: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    partition: str = ""
    account: str = ""
    time: str = ""

    def flags(self) -> list[str]:
        found = []
        for name, value in vars(self).items():
            if value:
                found.append(f"--{name.replace('_', '-')}={value}")
        return found


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that was submitted: its number, and the command that did it."""

    number: str
    command: str


def sbatch(arguments: Sequence[str]) -> Job:
    """Submit; raises LaunchError with what mends it where sbatch refuses, or where there is no Slurm."""
    command = ["sbatch", "--parsable", *arguments]
    script = next((word for word in arguments if not word.startswith("-")), "the job")
    said = _run(command, "`hpcnn study run` runs here", lambda stderr: sbatch_refusal(stderr, script))
    return Job(number=said.split(";")[0].strip(), command=shlex.join(["sbatch", *arguments]))


def queued(numbers: Sequence[str]) -> dict[str, tuple[str, str]]:
    """(state, reason) of those of the jobs that are still in the queue, array tasks by NUMBER_TASK.

    Raises LaunchError where there is no Slurm to ask."""
    if not numbers:
        return {}
    jobs = ",".join(numbers)
    try:
        said = _run(["squeue", "--noheader", "--array", f"--jobs={jobs}", "--format=%i|%T|%r"], "ask on the cluster")
    except LaunchError as error:
        if "Invalid job id" in str(error):  # all of them ended a while ago
            return {}
        raise
    rows = [line.strip().split("|") for line in said.splitlines() if line.count("|") == 2]
    return {number: (state, reason) for number, state, reason in rows}


def _own_words(command: Sequence[str], stderr: str) -> LaunchError:
    words = [line for line in stderr.splitlines() if line.strip()] or ["it said nothing"]
    return LaunchError(f"{shlex.join(command)}: {'; '.join(words)}")


def _run(command: Sequence[str], without: str, refusal: Callable[[str], LaunchError] | None = None) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError:
        raise LaunchError(f"there is no {command[0]}: is this a machine of a Slurm cluster? {without}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{command[0]} gave no answer: {error}") from None
    if run.returncode:
        raise refusal(run.stderr) if refusal else _own_words(command, run.stderr)
    return run.stdout


def remember(folder: Path, jobs: Sequence[Job]) -> None:
    """FOLDER/submitted.json, with the jobs of earlier times."""
    table = [*_remembered(folder), *({"job": job.number, "command": job.command} for job in jobs)]
    write_json(folder / SUBMITTED, {"jobs": table})


def numbers_of(folder: Path) -> list[str]:
    """All jobs that were submitted for a study."""
    return [str(entry["job"]) for entry in _remembered(folder)]


def _remembered(folder: Path) -> list[dict[str, str]]:
    path = folder / SUBMITTED
    table = read_json(path).get("jobs", []) if path.exists() else []
    return [entry for entry in table if isinstance(entry, dict) and "job" in entry]
