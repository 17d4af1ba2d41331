"""Which runs of a study make one line of a plot: those that differ in ranks, and in what follows from ranks, alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpcnn.studies.cells import SCALINGS, Cell
from hpcnn.studies.scaling import Fit, Law, Spread, fit_law, karp_flatt, scaled_fraction, speedups, spread
from hpcnn.studies.study_reading import Measured

LAYOUT = ("strategy", "grid", "schedule", "chunks", "balance", "stages", "reducer", "reducer_option", "micro_batches")
"""What makes no difference on one rank, which so is the base of every one of them."""
LAWS: Mapping[str, Law] = {"strong": "Amdahl", "weak": "Gustafson"}
_SUFFIX = {"strong": " (strong)", "weak": " (weak)", "none": ""}
_ALWAYS = ("backend", "strategy")
_PLAIN = ("backend", "strategy", "grid", "schedule", "reducer")
"""Settings whose value says by itself what it is."""


Points = Mapping[int, Sequence[Measured]]
"""Repeats by number of ranks, ascending."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """The repeats of one series on one number of ranks."""

    ranks: int
    runs: Sequence[Measured]
    rate: Spread
    speedup: Spread
    """Over the series' base; nan where there is none."""
    fraction: float
    """The serial fraction that the median speed-up speaks of: Karp and Flatt's (strong), or scaled (weak)."""

    @property
    def efficiency(self) -> Spread:
        one = self.speedup
        return Spread(one.median / self.ranks, one.low / self.ranks, one.high / self.ranks, one.count)

    def share(self, *phases: str) -> Spread:
        """Of the ranks' time in training."""
        return spread([one.spent.share(*phases) for one in self.runs])

    @property
    def starved(self) -> bool:
        """Most of its runs."""
        return 2 * sum(one.spent.starved for one in self.runs) > len(self.runs)

    @property
    def typical(self) -> Measured:
        """The run in the middle of its repeats by rate (of two, the slower)."""
        return sorted(self.runs, key=lambda one: (one.rate, one.cell.key))[(len(self.runs) - 1) // 2]


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """`label`: what tells it from others of its scaling, `name` from all of the study. `base`: the ranks that
    speed-ups are over."""

    label: str
    name: str
    scaling: str
    settings: Mapping[str, Any]
    points: Sequence[Point]
    base: int
    fit: Fit | None


def series_of(measured: Sequence[Measured]) -> list[Series]:
    """In the order of the cells; points by ranks. Runs on one rank that are others' base alone make no series."""
    grouped: dict[str, list[Measured]] = {}
    for one in measured:
        grouped.setdefault(_key(one.cell), []).append(one)
    by_ranks = [_with_base(_by_ranks(runs), measured) for runs in grouped.values()]
    kept = [one for one in by_ranks if not any(_is_base_of(one, other) for other in by_ranks)]
    of_kind = {kind: [one for one in kept if _cell_of(one).scaling == kind] for kind in SCALINGS}
    found = {
        id(one): _series(label, one)
        for some in of_kind.values()
        for label, one in zip(_labels([_cell_of(one) for one in some]), some, strict=True)
    }
    several = sum(map(bool, of_kind.values())) > 1
    return [
        replace(series, name=f"{series.label}{_SUFFIX[series.scaling]}") if several else series
        for series in (found[id(one)] for one in kept)
    ]


def _by_ranks(runs: Sequence[Measured]) -> Points:
    return {
        ranks: [one for one in runs if one.cell.ranks == ranks] for ranks in sorted({one.cell.ranks for one in runs})
    }


def _with_base(points: Points, all_: Sequence[Measured]) -> Points:
    """With the runs of the same work on one rank, whatever would share it out among several."""
    cell = _cell_of(points)
    wanted = _key(cell, without=LAYOUT)
    single = [one for one in all_ if one.cell.ranks == 1 and _key(one.cell, without=LAYOUT) == wanted]
    return points if cell.scaling == "none" or 1 in points or not single else {1: single, **points}


def _is_base_of(one: Points, other: Points) -> bool:
    return one is not other and one.keys() == {1} and len(other) > 1 and set(one[1]) <= set(other[1])


def _cell_of(points: Points) -> Cell:
    return points[max(points)][0].cell


def _series(label: str, points: Points) -> Series:
    cell, base = _cell_of(points), min(points)
    rates = {ranks: [one.rate for one in runs] for ranks, runs in points.items()}
    law = LAWS.get(cell.scaling)
    return Series(
        label=label,
        name=label,
        scaling=cell.scaling,
        settings=_settings(cell),
        points=[_point(cell.scaling, ranks, runs, rates, base) for ranks, runs in points.items()],
        base=base,
        fit=fit_law(law, rates) if law else None,
    )


def _point(
    scaling: str, ranks: int, runs: Sequence[Measured], rates: Mapping[int, Sequence[float]], base: int
) -> Point:
    speedup = spread(speedups(rates[ranks], rates[base], base) if scaling != "none" else [])
    fraction = {"strong": karp_flatt, "weak": scaled_fraction}.get(scaling)
    return Point(
        ranks=ranks,
        runs=runs,
        rate=spread(rates[ranks]),
        speedup=speedup,
        fraction=fraction(speedup.median, ranks) if fraction and base == 1 else math.nan,
    )


def _settings(cell: Cell) -> dict[str, Any]:
    """Without what follows from the number of ranks: of weak scaling batch and rows become those of a rank, of grids
    the replicas go (and all, where nothing is left to choose)."""
    found = {name: value for name, value in cell.settings.items() if value not in (None, {}, [])}
    for name, short in (("global_batch", "batch"), ("rows", "rows")):
        value = found.pop(name, None)
        if value is not None:
            found |= {f"{short} a rank": value / cell.ranks} if cell.scaling == "weak" else {short: value}
    if found.get("micro_batches") == 1:
        del found["micro_batches"]  # as if nobody had spoken of them
    grid = str(found.pop("grid", ""))
    if found.get("strategy") == "hybrid" and grid:
        found["grid"] = ",".join(part for part in grid.split(",") if not part.strip().startswith("dp="))
    return found


def _key(cell: Cell, without: Sequence[str] = ()) -> str:
    kept = {name: value for name, value in _settings(cell).items() if name not in without}
    return json.dumps([cell.scaling, sorted(kept.items())], sort_keys=True, default=str)


def _labels(cells: Sequence[Cell]) -> list[str]:
    """Backend, strategy and every setting that not all of them share."""
    settings = [_settings(cell) for cell in cells]
    names = list(dict.fromkeys(name for one in settings for name in one))
    told = [name for name in names if name in _ALWAYS or len({str(one.get(name)) for one in settings}) > 1]
    told.sort(key=lambda name: _PLAIN.index(name) if name in _PLAIN else len(_PLAIN))
    return [_label(one, told) for one in settings]


def _label(settings: Mapping[str, Any], told: Sequence[str]) -> str:
    words = []
    for name in told:
        value = settings.get(name)
        if value is None or name == "keras_backend":
            continue
        if name == "backend" and (engine := settings.get("keras_backend")):
            value = f"{value} on {engine}"
        value = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(value if name in _PLAIN else f"{name.replace('_', ' ')} {value}")
    return ", ".join(words) or "runs"
