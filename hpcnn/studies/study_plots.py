"""The plots of a study, each as SVG and PNG: readable in grey (markers, lines, hatches) and by the colour-blind."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcnn.errors import NotInstalledError
from hpcnn.records.files import write_bytes
from hpcnn.studies.plots import COLOURS, LINES
from hpcnn.studies.scaling import Spread
from hpcnn.studies.study_headlines import ranks_words
from hpcnn.studies.study_reading import Results
from hpcnn.studies.study_series import Series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "os^DvPX*<>"
STYLE: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "hatch.linewidth": 0.6,
    "svg.fonttype": "none", "savefig.facecolor": "white",
}  # fmt: skip
WIDTH = 9.0
"""Inches, of a figure."""
_UNSIGNED = {name: None for name in ("Creator", "Date", "Format", "Type")}
"""No words about who made an SVG and when: the same runs give the same bytes."""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """`name`: of its files. `words`: how to read it. Both pictures are of one figure."""

    name: str
    title: str
    words: str
    svg: bytes
    png: bytes

    def write(self, folder: Path) -> list[Path]:
        paths = [folder / f"{self.name}.svg", folder / f"{self.name}.png"]
        for path, content in zip(paths, (self.svg, self.png), strict=True):
            write_bytes(path, content)
        return paths


Draw = Callable[[Results, Sequence[Series]], "Figure | None"]


def drawn(name: str, title: str, words: str, draw: Callable[[], Figure | None]) -> list[Plot]:
    """The plot, or none where there is nothing to draw. Raises NotInstalledError without Matplotlib."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise NotInstalledError(
            "a report draws with matplotlib, which is not installed: pip install 'hpcnn[plots]'"
        ) from None
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = draw()
        if figure is None:
            return []
        svg, png = io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata=_UNSIGNED)
        figure.set_layout_engine("none")  # it is laid out now, and laying out takes long
        figure.savefig(png, format="png", dpi=150)
    return [Plot(name=name, title=title, words=words, svg=svg.getvalue(), png=png.getvalue())]


def look(place: int) -> dict[str, Any]:
    """Colour, line and marker of the series in that place."""
    return {
        "color": COLOURS[3 * place % len(COLOURS)], "linestyle": LINES[place % len(LINES)],
        "marker": MARKERS[place % len(MARKERS)],
    }  # fmt: skip


def draw_scaling(series: Sequence[Series]) -> Figure | None:
    """Speed-up and efficiency over ranks, medians with quartiles, beside what is ideal and the laws fitted."""
    from matplotlib.figure import Figure

    series = [one for one in series if len(one.points) > 1]
    if not series:
        return None
    figure = Figure(figsize=(WIDTH, 3.8 + 0.16 * len(series)), layout="constrained")
    speed, efficiency = figure.subplots(1, 2)
    ticks = sorted({point.ranks for one in series for point in one.points})
    ends = np.geomspace(ticks[0], ticks[-1], 100)
    speed.plot(ends, ends, color="black", linewidth=0.8, label="ideal")
    efficiency.axhline(100, color="black", linewidth=0.8)
    for place, one in enumerate(series):
        ranks = [point.ranks for point in one.points]
        # a little aside, so that ranges of several series do not hide each other
        aside = [count * 1.02 ** (place - (len(series) - 1) / 2) for count in ranks]
        _points(speed, aside, [point.speedup for point in one.points], 1, label=one.label, **look(place))
        _points(efficiency, aside, [point.efficiency for point in one.points], 100, **look(place))
        if one.fit is not None:
            fitted = np.array([one.fit.speedup(count) for count in ends])
            colour = look(place)["color"]
            speed.plot(ends, fitted, color=colour, linewidth=0.7, alpha=0.7)
            efficiency.plot(ends, 100 * fitted / ends, color=colour, linewidth=0.7, alpha=0.7)
    for axes in (speed, efficiency):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(count) for count in ticks])
        axes.minorticks_off()
        axes.set_xlabel("ranks")
    highest = max([ticks[-1], *(point.speedup.high for one in series for point in one.points)])
    speed.set_yscale("log", base=2)
    powers = [2.0**power for power in range(-3, math.ceil(math.log2(highest)) + 1)]
    speed.set_yticks(powers, [f"{power:g}" for power in powers])
    lowest = min([ticks[0], *(point.speedup.low for one in series for point in one.points)])
    speed.set_ylim(0.9 * lowest, 1.15 * highest)
    efficiency.set_ylim(0, max(110.0, *(105 * point.efficiency.high for one in series for point in one.points)))
    speed.set(ylabel="speed-up", title="speed-up")
    efficiency.set(ylabel="efficiency, %", title="efficiency")
    figure.legend(loc="outside lower center", ncols=2 if len(series) > 1 else 4)
    return figure


def _points(axes: Any, ranks: Sequence[float], values: Sequence[Spread], factor: float, **how: Any) -> None:
    middle = np.array([factor * one.median for one in values])
    ends = [[factor * (one.median - one.low) for one in values], [factor * (one.high - one.median) for one in values]]
    axes.errorbar(ranks, middle, yerr=ends, capsize=3, markersize=5, linewidth=1.4, elinewidth=1.0, **how)


def draw_throughput(series: Sequence[Series]) -> Figure | None:
    """Samples a second of what is compared side by side, medians with quartiles."""
    from matplotlib.figure import Figure

    points = [(f"{one.label}, {ranks_words(point.ranks)}", point) for one in series for point in one.points]
    if not points:
        return None
    figure = Figure(figsize=(WIDTH, 1.0 + 0.28 * len(points)), layout="constrained")
    axes = figure.subplots()
    rates = [point.rate for _, point in points]
    middle = np.array([one.median for one in rates])
    ends = [[one.median - one.low for one in rates], [one.high - one.median for one in rates]]
    axes.barh(range(len(points)), middle, color=COLOURS[5], edgecolor=COLOURS[0], height=0.6)
    axes.errorbar(middle, range(len(points)), xerr=ends, fmt="o", color="black", markersize=3, capsize=3)
    axes.set_yticks(range(len(points)), [label for label, _ in points])
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("samples/s")
    return figure
