"""`hpcnn study submit`: the cells of a study as Slurm job arrays, one a shape, and a report when all have ended.

All tasks of an array have the same shape, so cells of equal ranks and threads are one array. Its tasks are the repeats:
a task runs one repeat of every cell of the shape, on the same nodes, in the order of the study. So what is compared in
one repeat has met the same nodes, and repeats meet others.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpcnn.cluster.slurm import Job, Shape, numbers_of, queued, remember, sbatch
from hpcnn.cluster.study_folder import make_folder, training_rows
from hpcnn.errors import HpcnnError, LaunchError
from hpcnn.studies.cells import CELLS, Cell, record_state, state_of
from hpcnn.studies.matrix import config_of, expand
from hpcnn.studies.study_file import Slurm, Study, read_study
from hpcnn.studies.weak import unequal_work
from hpcnn.training.progress import say

SCRIPT = "jobs/study.slurm"
REPORT = "bash env/with.sh torch hpcnn study report"


def submit_study(path: Path, *, asked: Slurm, report: bool, dry_run: bool) -> int:
    """Submit what isn't finished, or say what would be. `asked`: by flags, over the study's [slurm].

    Raises LaunchError where jobs of the study are still queued, or Slurm refuses one."""
    study = read_study(path)
    cells = expand(study)
    if (study.out / CELLS).exists():
        cells = [state_of(study.out, cell) for cell in cells]
    left, refused = _runnable(cells)
    slurm = _over(study.slurm, asked)
    arrays = _arrays(study, left, slurm)
    if dry_run:
        names = [f"ARRAY{place}" for place in range(1, len(arrays) + 1)]
        for arguments in [*arrays, *([_report(study, names, slurm)] if report and arrays else [])]:
            print(shlex.join(["sbatch", *arguments]))
    else:
        _prepare(study, left, refused)
        _submit(study, arrays, slurm if report else None)
    for cell in {cell.group: cell for cell in refused}.values():
        say(f"refused: {cell.label}: {cell.reason}")
    return 0


def _runnable(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Those to submit, and those of which it can be told here that `hpcnn train` will refuse them."""
    reasons = unequal_work(cells)
    good: list[Cell] = []
    refused: list[Cell] = []
    for cell in cells:
        reason = reasons.get(cell.group, "")
        try:
            config_of(cell)
        except HpcnnError as error:
            reason = str(error)
        if reason:
            refused.append(replace(cell, state="refused", reason=reason))
        elif cell.state != "done":
            good.append(cell)
    return good, refused


def _over(study: Slurm, asked: Slurm) -> Slurm:
    usual = Slurm()
    given = {name: value for name, value in vars(asked).items() if value != getattr(usual, name)}
    return Slurm(**{**vars(study), **given})


def _arrays(study: Study, cells: Sequence[Cell], slurm: Slurm) -> list[list[str]]:
    """Arguments of sbatch, an array a shape; a task a repeat that has cells left."""
    repeats: dict[tuple[int, int], set[int]] = {}
    for cell in cells:
        repeats.setdefault((cell.ranks, int(cell.settings["threads"])), set()).add(cell.repeat)
    found = []
    for (ranks, threads), left in sorted(repeats.items()):
        tasks = min(ranks, slurm.ntasks_per_node or ranks)
        shape = Shape(
            nodes=-(-ranks // tasks), ntasks_per_node=tasks, cpus_per_task=threads,
            partition=slurm.partition, account=slurm.account, time=slurm.time,
        )  # fmt: skip
        numbers = ",".join(map(str, sorted(left)))
        found.append(
            [
                f"--job-name={study.name}-np{ranks}", f"--array={numbers}", *shape.flags(), f"--ntasks={ranks}",
                *slurm.options, SCRIPT, str(study.path), "--ranks", str(ranks), "--threads", str(threads),
            ]
        )  # fmt: skip
    return found


def _report(study: Study, numbers: Sequence[str], slurm: Slurm) -> list[str]:
    shape = Shape(nodes=1, ntasks_per_node=1, partition=slurm.partition, account=slurm.account, time=slurm.time)
    command = f"{REPORT} {shlex.quote(str(study.path))}"
    return [
        f"--job-name={study.name}-report", "--output=%x-%j.out", f"--dependency=afterany:{':'.join(numbers)}",
        *shape.flags(), "--wrap", command,
    ]  # fmt: skip


def _prepare(study: Study, left: Sequence[Cell], refused: Sequence[Cell]) -> None:
    """The study's folder, with the rows of all cells: cut once, not by tasks that run at the same time."""
    if waiting := queued(numbers_of(study.out)):
        raise LaunchError(
            f"{study.path}: jobs {', '.join(sorted(waiting))} of it are still queued: wait for them "
            "(`hpcnn study status`), or scancel them"
        )
    if not Path(SCRIPT).exists():
        raise LaunchError(f"there is no {SCRIPT} here: submit from the top of a clone of hpcnn")
    make_folder(study, expand(study))
    for cell in refused:
        record_state(study.out, cell)
    for cell in left:
        training_rows(study, cell)


def _submit(study: Study, arrays: Sequence[Sequence[str]], report: Slurm | None) -> None:
    """`report`: what its job asks for, if there is to be one."""
    jobs: list[Job] = []
    try:
        for arguments in arrays:
            jobs.append(_told(arguments))
        if report is not None and jobs:
            jobs.append(_told(_report(study, [job.number for job in jobs], report)))
    finally:
        if jobs:
            remember(study.out, jobs)
    say(f"study {study.name}: {len(jobs)} jobs submitted; `hpcnn study status {study.path}` follows them")


def _told(arguments: Sequence[str]) -> Job:
    job = sbatch(arguments)
    say(f"{job.number}: {job.command}")
    return job


def job_words(queue: Mapping[str, tuple[str, str]]) -> list[str]:
    """A line a job that is still queued, for `hpcnn study status`."""
    return [
        f"job {number}: {state.lower()}" + (f" ({reason})" if reason not in ("None", "") else "")
        for number, (state, reason) in sorted(queue.items())
    ]
