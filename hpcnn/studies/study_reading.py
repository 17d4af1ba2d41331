"""A study's runs, read from its folder, and by name what is left out of its figures: cells that did not run, and runs
that are damaged, half-written, another cell's or made by other versions than the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcnn.backend_options import backend_label
from hpcnn.errors import ResultsError
from hpcnn.records.run_folder import RankTimes
from hpcnn.studies.cells import RUNS, Cell, read_cells, study_facts
from hpcnn.studies.reading import Run, read_run
from hpcnn.studies.study_timing import Spent, late_ranks, read_times, spent
from hpcnn.studies.tables import read_table

_OF_RUN = ("loss.csv", "timing.csv")
_SETTINGS = ("strategy", "reducer", "network", "global_batch", "seed", "threads")
"""Of a cell, that run.json repeats as they were asked for."""
FRAMEWORKS = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "keras": ("keras",),
    "lasagne": ("lasagne", "theano"),
}
"""Packages whose version changes what a backend does."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """A run that counts. `late`: the ranks that kept others waiting; `why`: in words."""

    cell: Cell
    run: Run
    times: Sequence[RankTimes]
    spent: Spent
    rows: int
    """Training rows in its timed steps."""
    steps: int
    late: Sequence[int]
    why: str

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.spent.seconds


@dataclass(frozen=True)
class LeftOut:
    """A cell without figures; `reason` is one line."""

    cell: Cell
    state: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """`notes`: what a reader of the figures has to know besides."""

    folder: Path
    name: str
    warmup: int
    cells: Sequence[Cell]
    measured: Sequence[Measured]
    left_out: Sequence[LeftOut]
    notes: Sequence[str]


def read_results(folder: Path) -> Results:
    """All of a study. Raises ResultsError where the folder holds none; what is wrong with one cell is in `left_out`."""
    name, warmup = study_facts(folder)
    cells = read_cells(folder)
    found: list[Measured] = []
    left: list[LeftOut] = []
    for cell in cells:
        try:
            found.append(_measured(folder, cell, warmup))
        except ResultsError as error:
            words = str(error).replace(f"{folder}/", "")
            left.append(LeftOut(cell, "damaged" if cell.state == "done" else cell.state, words))
    kept = []
    for one in found:
        if reason := _other_version(one, found):
            left.append(LeftOut(one.cell, "other version", reason))
        else:
            kept.append(one)
    place = {cell.key: number for number, cell in enumerate(cells)}
    left.sort(key=lambda one: place[one.cell.key])
    return Results(
        folder=folder, name=name, warmup=warmup, cells=cells, measured=kept, left_out=left, notes=list(_notes(kept))
    )


def _measured(folder: Path, cell: Cell, warmup: int) -> Measured:
    """Raises ResultsError where the cell has no run whose figures count, with the reason."""
    if cell.state != "done" or cell.run is None:
        raise ResultsError(cell.reason or _half_written(folder, cell))
    path = folder / cell.run
    run = read_run(path)
    _check_it_is_one_run(run)
    _check_it_is_of(cell, run)
    times = read_times(path / "timing.csv", run.manifest)
    if len(times) != run.ranks:
        raise ResultsError(f"{path / 'timing.csv'}: has {len(times)} ranks, run.json says {run.ranks}; run it again")
    timed = run.losses["step"] >= warmup
    if not timed.any():
        raise ResultsError(f"{path}: has {run.steps} steps, of which {warmup} are warm-up: nothing is left to measure")
    before = run.losses["samples"][~timed]
    time = spent(times)
    if time.seconds <= 0:
        raise ResultsError(f"{path / 'timing.csv'}: has no time in epochs; run it again")
    late, why = late_ranks(times)
    return Measured(
        cell=cell, run=run, times=times, spent=time, late=late, why=why, steps=int(timed.sum()),
        rows=int(run.losses["samples"][-1] - (before[-1] if len(before) else 0)),
    )  # fmt: skip


def _half_written(folder: Path, cell: Cell) -> str:
    """Of a cell that nobody has finished: what its newest run looks like, where there is one."""
    records = sorted((folder / RUNS / cell.key).glob("*/"))
    for path in reversed(records):
        try:
            read_run(path)
        except ResultsError as error:
            return str(error)
    return "was not run yet" if cell.state == "waiting" else f"is {cell.state}, and has left no run"


def _check_it_is_one_run(run: Run) -> None:
    """A folder that was copied together from two has files that name two runs."""
    for name in _OF_RUN:
        named = set(read_table(run.path / name, ("run",))["run"]) - {run.manifest.get("run")}
        if named:
            raise ResultsError(
                f"{run.path / name}: is of run {min(named)!r}, run.json of {run.manifest.get('run')!r}: of two runs"
            )


def _check_it_is_of(cell: Cell, run: Run) -> None:
    engine = cell.settings.get("keras_backend")
    wanted = {name: cell.settings.get(name) for name in _SETTINGS} | {"ranks": cell.ranks}
    wanted["backend"] = backend_label(str(cell.settings.get("backend")), {"backend": engine} if engine else {})
    found = {**run.config, "ranks": run.ranks, "backend": computes(run)}
    for name, value in wanted.items():
        if value is not None and name in found and str(found[name]) != str(value):
            raise ResultsError(f"{run.path}: was made with {name} {found[name]}, its cell says {value}; run it again")


def _versions(one: Measured) -> dict[str, str]:
    """Of what decides what a run of its backend does."""
    versions = one.run.manifest.get("versions")
    versions = versions if isinstance(versions, Mapping) else {}
    names = ("hpcnn", *FRAMEWORKS.get(str(one.run.config.get("backend")), ()))
    return {name: str(versions[name]) for name in names if name in versions}


def _other_version(one: Measured, all_: Sequence[Measured]) -> str:
    """How the run's versions differ from those of most runs of its backend; empty where they don't."""
    own = _versions(one)
    for name, version in own.items():
        others = [
            _versions(other).get(name) for other in all_ if name == "hpcnn" or computes(other.run) == computes(one.run)
        ]
        usual, _ = Counter(others).most_common(1)[0]
        if version != usual and usual is not None:
            return f"{one.cell.run}: was made with {name} {version}, most runs with {usual}; run it again"
    return ""


def computes(run: Run) -> str:
    """The backend, Keras with what is under it."""
    return backend_label(str(run.config.get("backend")), run.config.get("backend_option") or {})


def _notes(measured: Sequence[Measured]) -> Iterator[str]:
    commits = {str(one.run.manifest["commit"]) for one in measured if one.run.manifest.get("commit")}
    if len(commits) > 1:
        yield f"The checkout was at several commits: {', '.join(sorted(commits))}."
    processors = {str(one.get("processor")) for run in measured for one in machines_of(run.run)}
    if len(processors) > 1:
        yield f"Runs were on several kinds of processor: {', '.join(sorted(processors))}."
    if any(one.why == "not recorded" for one in measured):
        yield "Some runs did not record when their ranks arrived, so that their late ranks are not known."


def machines_of(run: Run) -> list[Mapping[str, Any]]:
    """What run.json says of each host."""
    found = run.manifest.get("machine")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
