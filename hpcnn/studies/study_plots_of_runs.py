"""Plots of a study's single runs: where each rank's time goes, how the loss falls, and how far runs are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.records.phases import PHASES
from hpcnn.studies.agreement import agreement_pairs
from hpcnn.studies.plots import COLOURS, HATCHES
from hpcnn.studies.study_headlines import ranks_words
from hpcnn.studies.study_plots import WIDTH, look
from hpcnn.studies.study_reading import Measured
from hpcnn.studies.study_sameness import Sameness
from hpcnn.studies.study_series import Point, Series
from hpcnn.studies.study_table import TIMED
from hpcnn.studies.study_timing import rank_phases, step_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS = 12
MOST_CURVES = 10
MOST_RUNS = 14
"""Of an agreement matrix."""
_DRAWN = [phase for phase in PHASES if phase != "start"]
_SMOOTH = 40
"""A curve is a mean over so many parts of it: single batches scatter."""
_GAP = 0.5
"""Between bars of different numbers of ranks; a bar is 1."""
_LEAST = 1e-8
"""Below it nothing is told apart in the shades of the matrix."""


def draw_phases(series: Sequence[Series]) -> Figure | None:
    """A panel a series, a bar a rank: milliseconds of a step by phase, of the run with the median rate."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    shown = series[:MOST_PANELS]
    if not shown:
        return None
    columns = min(2, len(shown))
    rows = math.ceil(len(shown) / columns)
    heights = [0.8 + 0.2 * max(map(_bar_count, shown[columns * row : columns * (row + 1)])) for row in range(rows)]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.7), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).ravel()
    used: set[str] = set()
    for place, (axes, one) in enumerate(zip(panels, shown, strict=False)):
        used |= _bars(axes, one)
        beside = shown[place // columns * columns : (place // columns + 1) * columns]
        axes.set_ylim(max(map(_bar_count, beside)) - 0.4, -0.7)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    patches = [Patch(label=phase, **_fill(phase)) for phase in _DRAWN if phase in used]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
    return figure


def _bar_count(series: Series) -> float:
    """With the gaps between numbers of ranks."""
    return sum(point.ranks for point in series.points) + _GAP * (len(series.points) - 1)


def _fill(phase: str) -> dict[str, Any]:
    place = _DRAWN.index(phase)
    return {"facecolor": COLOURS[place], "hatch": HATCHES[place], "edgecolor": "white", "linewidth": 0.4}


def _bars(axes: Any, series: Series) -> set[str]:
    """Returns the phases that take time."""
    names, times, place = [], [], 0.0
    places = []
    for point in series.points:
        run = point.typical
        for rank in run.times:
            names.append(f"{ranks_words(point.ranks)}: rank {rank.rank}" if rank.rank == 0 else f"rank {rank.rank}")
            times.append({phase: 1000 * spent / run.steps for phase, spent in rank_phases(rank).items()})
            places.append(place)
            place += 1.0
        place += _GAP
    left = np.zeros(len(names))
    used = set()
    for phase in _DRAWN:
        width = np.array([one.get(phase, 0.0) for one in times])
        if phase in TIMED and width.any():
            axes.barh(places, width, left=left, height=0.85, **_fill(phase))
            left += width
            used.add(phase)
    axes.set_yticks(places, names)
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="milliseconds a step", title=series.name)
    return used


def chosen(series: Sequence[Series], most: int) -> list[tuple[str, Measured]]:
    """Runs to show, with their names: of every point the one with the median rate; where these are too many, of every
    series those on the fewest and on the most ranks; and of those the first ones."""

    def named(one: Series, point: Point) -> tuple[str, Measured]:
        return f"{one.name}, {ranks_words(point.ranks)}", point.typical

    found = [named(one, point) for one in series for point in one.points]
    if len(found) > most:
        ends = [(one, dict.fromkeys((one.points[0], one.points[-1]))) for one in series]
        found = [named(one, point) for one, points in ends for point in points]
    once = {run.cell.key: (name, run) for name, run in reversed(found)}
    return [pair for pair in found if once[pair[1].cell.key] == pair][:most]


def draw_losses(series: Sequence[Series], warmup: int) -> Figure | None:
    """Training loss over epochs and over time, and the validation loss where there is one."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    runs = chosen(series, MOST_CURVES)
    if not runs:
        return None
    figure = Figure(figsize=(WIDTH, 3.6 + 0.1 * len(runs)), layout="constrained")
    over_epochs, over_time = figure.subplots(1, 2, sharey=True)
    handles = [Line2D([], [], label=name, **look(place)) for place, (name, _) in enumerate(runs)]
    # the first ones thick, so that they show where others lie on them
    widths = np.linspace(1.0 + 0.25 * (len(runs) - 1), 1.0, len(runs))
    for place, (_, one) in enumerate(runs):
        losses = one.run.losses
        rows = float(one.run.manifest.get("training_rows") or losses["samples"][-1])
        epochs, seconds = losses["samples"] / rows, step_seconds(one.run, one.times, warmup)
        how = {**look(place), "marker": "", "linewidth": widths[place]}
        dots = {**look(place), "linestyle": "", "markersize": 5, "markeredgecolor": "white"}
        for axes, at in ((over_epochs, epochs), (over_time, seconds)):
            smooth, window = smoothed(losses["train_loss"])
            axes.plot(at[window - 1 :], smooth, **how)
            axes.plot(at, losses["validation_loss"], **dots)
    over_epochs.set(
        xlabel="epochs", ylabel="training loss (marks: validation)", yscale="log", title="loss against epoch"
    )
    over_time.set(xlabel="seconds of training after warm-up", title="loss against time")
    over_epochs.yaxis.set_major_formatter("{x:g}")
    over_epochs.yaxis.set_minor_formatter("{x:g}")
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def smoothed(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Means over a window that ends at each step, and how long it is; the first one at the end of the first window."""
    window = max(1, len(values) // _SMOOTH)
    sums = np.cumsum(np.concatenate([[0.0], values]))
    return (sums[window:] - sums[:-window]) / window, window


def draw_agreement(series: Sequence[Series], verdicts: Mapping[str, Sameness]) -> Figure | None:
    """How far each pair of runs of one experiment is apart: above the diagonal their predictions, below it their last
    training loss."""
    from matplotlib.figure import Figure

    runs = chosen(series, MOST_RUNS)
    of = [verdicts[one.cell.key].experiment for _, one in runs]
    runs = [pair for pair, own in zip(runs, of, strict=True) if of.count(own) > 1]
    of = [own for own in of if of.count(own) > 1]
    size = len(runs)
    if not size:
        return None
    pairs = iter(agreement_pairs([one.run for _, one in runs]))
    texts, shades = np.full((size, size), "", dtype=object), np.full((size, size), np.nan)
    for row in range(size):
        for column in range(row + 1, size):
            pair = next(pairs)
            if of[row] != of[column]:
                continue
            if pair.predictions is not None:
                texts[row, column], shades[row, column] = f"{pair.predictions:.1%}", _shade(1 - pair.predictions)
            if pair.loss is not None:
                texts[column, row], shades[column, row] = f"{pair.loss:.0e}" if pair.loss else "0", _shade(pair.loss)
    figure = Figure(figsize=(WIDTH, 1.2 + 0.42 * size), layout="constrained")
    axes = figure.subplots()
    places = np.arange(size + 1) - 0.5
    axes.pcolormesh(places, places, shades, cmap="Greys", vmin=0.0, vmax=2.0, edgecolors="white", linewidth=0.5)
    axes.invert_yaxis()
    for row in range(size):
        for column in range(size):
            axes.text(column, row, texts[row, column], ha="center", va="center", fontsize=8)
    axes.set_yticks(range(size), [f"{name}  {place}" for place, (name, _) in enumerate(runs, start=1)])
    axes.set_xticks(range(size), [str(place) for place in range(1, size + 1)])
    axes.xaxis.tick_top()
    axes.grid(visible=False)
    words = "above the diagonal: equal predictions; below: relative difference of the last training loss"
    figure.supxlabel(words, fontsize=9)
    return figure


def _shade(apart: float) -> float:
    """0 to 1, by the order of magnitude."""
    return max(0.0, 1 + math.log10(max(apart, _LEAST)) / -math.log10(_LEAST)) if apart else 0.0
