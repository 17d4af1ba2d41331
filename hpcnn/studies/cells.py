"""The cells of a study, as its folder keeps them for whoever runs, follows or reads it.

    OUT/study.toml              what was asked, as it was asked
    OUT/cells.json              every cell of the matrix, in the order in which they run
    OUT/runs/KEY/cell.json      how it went with one cell: whoever runs it writes this file alone, so that the tasks of
                                a job array never write the same file
    OUT/runs/KEY/RUN_ID/        what `hpcnn train` left: run.json, loss.csv, timing.csv and so on

Warm-up steps are apart in the run itself: a study gives its `warmup_steps` to each run as --settle-steps, which books
the times of so many first steps (compiling, first touches of memory, caches that fill) under epoch 0 of timing.csv,
where what is outside epochs is. So the pace of a cell is

    seconds   those of timing.csv in epochs from 1 on; a rank's are the sum over its phases
    rows      of loss.csv: `samples` of the last step less `samples` of the last warm-up step (step < warmup_steps)

and neither has anything of a warm-up step. Losses of warm-up steps are losses like all others.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcnn.errors import ResultsError
from hpcnn.records.files import write_json
from hpcnn.records.state import RunState, read_json, read_state

STATES = ("waiting", "running", "done", "failed", "refused")
SCALINGS = ("none", "strong", "weak")
CELLS, STATE, RUNS, ASKED = "cells.json", "cell.json", "runs", "study.toml"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of the matrix. `settings` are those of `hpcnn train` that the study gave or left at their default.

    `key`: readable, unique, a folder's name, and the same whatever else is in the matrix; repeats of a cell differ in
    their last part alone. `reason`: why it was refused or failed. `run`: the run's folder, from the study's.
    """

    key: str
    repeat: int
    ranks: int
    scaling: str = "none"
    settings: Mapping[str, Any] = field(default_factory=dict)
    state: str = "waiting"
    reason: str = ""
    run: str | None = None

    @property
    def group(self) -> str:
        """What its repeats have in common."""
        return self.key.rpartition("_r")[0]

    @property
    def label(self) -> str:
        """A few words for people: what computes, how, on how many ranks."""
        get = self.settings.get
        backend = str(get("backend"))
        backend += f" on {get('keras_backend')}" if get("keras_backend") else ""
        words = [backend, str(get("strategy")), *(str(get(name)) for name in ("grid", "schedule") if get(name))]
        words += [str(get("reducer"))] if get("reducer") not in (None, "mpi") else []
        for switches in (get("backend_option") or {}, get("reducer_option") or {}):
            words += [f"{name}={value}" for name, value in switches.items()]
        pieces = f", {get('micro_batches')} micro-batches" if get("micro_batches") not in (None, 1) else ""
        ranks = f"{self.ranks} rank{'' if self.ranks == 1 else 's'}"
        return f"{' '.join(words)}, {ranks}, batch {get('global_batch')}{pieces}"


def write_cells(folder: Path, cells: Iterable[Cell], *, study: str | None = None, warmup_steps: int = 0) -> None:
    """OUT/cells.json, whole. `study`: its name, by default the folder's."""
    table = [dataclasses.asdict(cell) for cell in cells]
    write_json(folder / CELLS, {"study": study or folder.name, "warmup_steps": warmup_steps, "cells": table})


def read_cells(folder: Path) -> list[Cell]:
    """All cells with their states as they are now. Raises ResultsError where the folder holds no study."""
    return [state_of(folder, cell) for cell in _listed(folder)]


def study_facts(folder: Path) -> tuple[str, int]:
    """The study's name and its warm-up steps. Raises ResultsError."""
    document = _document(folder)
    name, steps = document.get("study"), document.get("warmup_steps")
    if not isinstance(name, str) or type(steps) is not int:
        raise ResultsError(f"{folder / CELLS}: is not the list of a study: it has no name or no warmup_steps")
    return name, steps


def _document(folder: Path) -> dict[str, Any]:
    path = folder / CELLS
    if not path.exists():
        raise ResultsError(f"{path}: no such file: is {folder} the folder of a study that was run or submitted?")
    return read_json(path)


def _listed(folder: Path) -> list[Cell]:
    path, table = folder / CELLS, _document(folder).get("cells")
    if not isinstance(table, list):
        raise ResultsError(f"{path}: is not the list of a study: it has no cells")
    return [_cell(path, place, entry) for place, entry in enumerate(table)]


def _cell(path: Path, place: int, entry: Any) -> Cell:
    names = [item.name for item in dataclasses.fields(Cell)]
    kinds = {"key": str, "repeat": int, "ranks": int, "settings": dict}
    if not isinstance(entry, dict) or not all(type(entry.get(name)) is kind for name, kind in kinds.items()):
        raise ResultsError(f"{path}: cell {place} has not the form of one; remove the file and run the study again")
    cell = Cell(**{name: value for name, value in entry.items() if name in names})
    if cell.state not in STATES or cell.scaling not in SCALINGS:
        raise ResultsError(
            f"{path}: cell {cell.key} is {cell.state!r} of {cell.scaling!r}: not what this version knows"
        )
    return cell


def record_state(folder: Path, cell: Cell) -> None:
    """OUT/runs/KEY/cell.json, whole: the cell's state, reason and run."""
    place = folder / RUNS / cell.key
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / STATE, {"state": cell.state, "reason": cell.reason, "run": cell.run})


def state_of(folder: Path, cell: Cell) -> Cell:
    """The cell with the state that was last recorded of it, and with what its runs say where nobody could record it: a
    run that has completed counts, and one that died waits to be run again."""
    place = folder / RUNS / cell.key
    with contextlib.suppress(ResultsError):  # a damaged record is none: what its runs say counts
        found = read_json(place / STATE)
        state, reason, run = found.get("state"), str(found.get("reason", "")), found.get("run")
        if state in STATES:
            cell = replace(cell, state=str(state), reason=reason, run=None if run is None else str(run))
    if cell.state not in ("waiting", "running"):
        return cell
    states = {record.parent: run_state(record.parent) for record in sorted(place.glob("*/run.json"))}
    for run_folder, found_state in states.items():
        if found_state.state == "completed":
            return replace(cell, state="done", reason="", run=str(run_folder.relative_to(folder)))
    if cell.state == "running" and states and all(one.state != "running" for one in states.values()):
        last = list(states.values())[-1]
        return replace(cell, state="waiting", reason=f"its last run {last.state} ({last.words})")
    return cell


def run_state(folder: Path) -> RunState:
    """As `read_state`; `damaged`, with the words of the error, where it can't be told."""
    try:
        return read_state(folder)
    except ResultsError as error:
        return RunState("damaged", str(error))
