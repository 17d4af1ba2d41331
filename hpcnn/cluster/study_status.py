"""`hpcnn study status`: a line a cell, its repeats' states beside it; then what went wrong, and what is queued."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcnn.cluster.slurm import numbers_of, queued
from hpcnn.cluster.study_live import step_words
from hpcnn.cluster.study_submit import job_words
from hpcnn.errors import LaunchError
from hpcnn.studies.cells import CELLS, RUNS, STATES, Cell, read_cells
from hpcnn.studies.matrix import expand
from hpcnn.studies.study_file import read_study

MARKS = {"waiting": ".", "running": ">", "done": "+", "failed": "x", "refused": "-"}


def status_lines(path: Path) -> Iterator[str]:
    """Of a study's file or folder. Raises ConfigError or ResultsError where it is none."""
    if path.is_dir():
        folder, cells = path, read_cells(path)
    else:
        study = read_study(path)
        folder, cells = study.out, expand(study)
        if (folder / CELLS).exists():
            known = {cell.key: cell for cell in read_cells(folder)}
            cells = [known.get(cell.key, cell) for cell in cells]
    counts = Counter(cell.state for cell in cells)
    found = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    yield f"{len(cells)} cells: {found}; folder {folder}"
    yield "repeats: " + ", ".join(f"{mark} {state}" for state, mark in MARKS.items())
    yield from _table(cells)
    yield from _running(folder, cells)
    yield from _reasons(cells)
    yield from _jobs(folder)


def _groups(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = defaultdict(list)
    for cell in sorted(cells, key=lambda cell: cell.repeat):
        groups[cell.group].append(cell)
    return groups


def _table(cells: Sequence[Cell]) -> Iterator[str]:
    labels = {group: f"{'' if some[0].scaling == 'none' else some[0].scaling + ': '}{some[0].label}"
              for group, some in _groups(cells).items()}  # fmt: skip
    width = max(map(len, labels.values()), default=0)
    for group, some in _groups(cells).items():
        yield f"  {labels[group]:<{width}}  {' '.join(MARKS[cell.state] for cell in some)}"


def _running(folder: Path, cells: Sequence[Cell]) -> Iterator[str]:
    for cell in cells:
        if cell.state == "running":
            yield f"running: {cell.label}, repeat {cell.repeat}: {step_words(folder / RUNS / cell.key)}"


def _reasons(cells: Sequence[Cell]) -> Iterator[str]:
    """Each reason once, with the repeats that it is of."""
    repeats: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for cell in cells:
        if cell.reason:
            repeats[cell.state, cell.label, cell.reason].append(cell.repeat)
    for (state, label, reason), some in repeats.items():
        of = "" if state == "refused" else f", repeat {', '.join(map(str, sorted(some)))}"
        yield f"{state}: {label}{of}: {reason}"


def _jobs(folder: Path) -> Iterator[str]:
    numbers = numbers_of(folder)
    if not numbers:
        return
    try:
        yield from job_words(queued(numbers)) or ["no job of it is queued any more"]
    except LaunchError as error:
        yield f"jobs {', '.join(numbers)} were submitted: {error}"
