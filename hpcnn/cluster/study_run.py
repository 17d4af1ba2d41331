"""`hpcnn study run`: every cell that isn't finished, one after another, each recorded as it begins and as it ends.

What was killed goes on by the same command: a cell whose run has completed is finished, whoever recorded it or did not.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcnn.cluster.cell_command import cell_command, cell_environment, obstacle, run_file_text
from hpcnn.cluster.cell_run import became, run_cell, runs_in
from hpcnn.cluster.endings import sigterm_stops
from hpcnn.cluster.study_folder import LOCK, held, make_folder, outlived, training_rows
from hpcnn.cluster.study_live import Live
from hpcnn.errors import HpcnnError
from hpcnn.records.files import write_text
from hpcnn.studies.cells import RUNS, Cell, record_state
from hpcnn.studies.matrix import expand
from hpcnn.studies.study_file import Study, read_study
from hpcnn.studies.weak import unequal_work
from hpcnn.training.progress import say

RUN_FILE = "run.toml"
CHECKPOINT = "checkpoint.h5"


@dataclass(frozen=True)
class Some:
    """Which cells: all, or those of so many ranks, threads, and of one repeat."""

    ranks: int | None = None
    threads: int | None = None
    repeat: int | None = None

    def __contains__(self, cell: object) -> bool:
        return isinstance(cell, Cell) and all(
            wanted is None or wanted == found
            for wanted, found in (
                (self.ranks, cell.ranks), (self.threads, cell.settings["threads"]), (self.repeat, cell.repeat),
            )
        )  # fmt: skip


def run_study(path: Path, some: Some) -> int:
    """Run what is left of a study; returns the exit status: 1 where a cell failed (refused ones are listed)."""
    study = read_study(path)
    cells = expand(study)
    # Tasks of a job array share the study, each with cells of its own; a run of all of it has it alone.
    in_task = "SLURM_ARRAY_TASK_ID" in os.environ
    with sigterm_stops(), held(study.out / LOCK, shared=in_task):
        make_folder(study, cells)
        reasons = unequal_work(cells)
        mine = [outlived(study.out, cell) for cell in cells if cell in some]
        left = [cell for cell in mine if cell.state != "done"]
        for cell in mine:
            if cell.state == "done":
                _finish(study, cell)
        done = len(mine) - len(left)
        say(f"study {study.name}: {len(mine)} cells, {done} done before; folder {study.out}")
        live = Live(study.out, left)
        try:
            ended = [_seen_through(study, cell, reasons.get(cell.group, ""), live) for cell in left]
        finally:
            live.close()
    return _summary(study, ended, done)


def _seen_through(study: Study, cell: Cell, reason: str, live: Live) -> Cell:
    folder = study.out / RUNS / cell.key
    folder.mkdir(parents=True, exist_ok=True)
    live.begin(cell)
    with held(folder / LOCK):
        cell = outlived(study.out, cell)
        if cell.state != "done":
            cell = _run(study, cell, reason or obstacle(cell, study.oversubscribe, os.environ), folder, live)
        _finish(study, cell)
    live.end(cell)
    return cell


def _run(study: Study, cell: Cell, reason: str, folder: Path, live: Live) -> Cell:
    if reason:
        return replace(cell, state="refused", reason=reason, run=None)
    try:
        write_text(folder / RUN_FILE, run_file_text(cell, training_rows(study, cell)))
        command = cell_command(cell, folder / RUN_FILE, folder, os.environ)
    except HpcnnError as error:
        return replace(cell, state="refused", reason=str(error), run=None)
    cell, before = replace(cell, state="running", reason="", run=None), runs_in(folder)
    record_state(study.out, cell)
    try:
        words = run_cell(command, cell_environment(cell, os.environ), folder, study.minutes, lambda: live.look(cell))
    except KeyboardInterrupt as stop:
        record_state(study.out, replace(cell, state="waiting", reason=f"stopped by {stop or 'Ctrl-C'}"))
        raise
    return became(cell, study.out, folder, before, words)


def _finish(study: Study, cell: Cell) -> None:
    """Record a cell's end, which is done again for one whose end nobody came to record."""
    record_state(study.out, cell)
    if cell.run is not None and not study.keep_checkpoints:
        with contextlib.suppress(OSError):
            (study.out / cell.run / CHECKPOINT).unlink()


def _summary(study: Study, ended: Sequence[Cell], done: int) -> int:
    counts: Mapping[str, int] = Counter(cell.state for cell in ended)
    words = [
        f"{done + counts['done']} done",
        *(f"{counts[name]} {name}" for name in ("failed", "refused") if counts[name]),
    ]
    say(f"study {study.name}: {', '.join(words)}; `hpcnn study report {study.path}` makes tables and plots")
    return 1 if counts["failed"] else 0
