"""The tables of a study as plain text cells, which the page and the Markdown beside it both show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcnn.studies.scaling import Spread, spread
from hpcnn.studies.study_headlines import number, percent
from hpcnn.studies.study_reading import Results
from hpcnn.studies.study_sameness import Sameness, counted
from hpcnn.studies.study_series import Point, Series
from hpcnn.studies.study_table import TIMED, finals

_TITLES = {"strong": "Strong scaling", "weak": "Weak scaling", "none": "Throughput"}
_FIGURES = {
    "loss": "final_loss", "accuracy": "final_accuracy", "validation loss": "validation_loss",
    "validation accuracy": "validation_accuracy", "test loss": "test_loss", "test accuracy": "test_accuracy",
}  # fmt: skip


LITTLE = 0.02
"""Share of the time that is not worth asking what it is more of."""


@dataclass(frozen=True)
class Table:
    """`words`: how to read it, under its title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: str = ""


def tables(study: Results, series: Sequence[Series], verdicts: Mapping[str, Sameness]) -> list[Table]:
    """Those with something in them, in the order of the page."""
    found = [
        *(_scaling(kind, [one for one in series if one.scaling == kind]) for kind in _TITLES),
        _fits(series),
        _phases(series),
        _late(series),
        _ends(series),
        _same(series, verdicts),
        _left_out(study),
    ]
    return [table for table in found if table.rows]


def markdown(text: Sequence[Table], headlines: Sequence[str], name: str) -> str:
    """tables.md: the headlines, then a table a section."""
    blocks = [f"# {name}", "\n".join(f"- {_escaped(line)}" for line in headlines)]
    for table in text:
        rows = [table.header, ["---"] * len(table.header), *table.rows]
        lines = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
        blocks += [f"## {table.title}", *([_escaped(table.words)] if table.words else []), "\n".join(lines)]
    return "\n\n".join(blocks) + "\n"


def _escaped(text: str) -> str:
    for sign in "\\|<*_`":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _rows(series: Sequence[Series], cells: Callable[[Series, Point], Sequence[str]]) -> list[Sequence[str]]:
    """A row a point: its series, its ranks, and what `cells` makes of it."""
    kinds = len({one.scaling for one in series})
    return [
        [one.label if kinds == 1 else one.name, str(point.ranks), *cells(one, point)]
        for one in series
        for point in one.points
    ]


def _within(value: Spread, form: Callable[[float], str]) -> str:
    """Median, and the quartiles where they differ."""
    if not value.count:
        return "-"
    low, middle, high = form(value.low), form(value.median), form(value.high)
    return middle if low == high else f"{middle} ({low} to {high})"


def _scaling(kind: str, series: Sequence[Series]) -> Table:
    def cells(one: Series, point: Point) -> Sequence[str]:
        scaled = [] if kind == "none" else [_within(point.speedup, "{:.2f}".format), _within(point.efficiency, percent)]
        shares = [_within(point.share(phase), percent) for phase in ("communicate", "wait", "load")]
        fraction = [] if kind == "none" else [percent(point.fraction, 1)]
        return [str(len(point.runs)), _within(point.rate, number), *scaled, *shares, *fraction]

    last = {"strong": "Karp-Flatt", "weak": "scaled serial fraction"}.get(kind)
    header = ["series", "ranks", "runs", "samples/s"]
    header += ["speed-up", "efficiency"] if last else []
    header += ["communicate", "wait", "load", *([last] if last else [])]
    return Table(_TITLES[kind], header, _rows(series, cells), _scaling_words(kind, series))


def _scaling_words(kind: str, series: Sequence[Series]) -> str:
    words = ["Medians over runs, with quartiles. Warm-up steps, evaluation and checkpoints are apart."]
    if kind != "none":
        words.append("Speed-up is of each run over each run on one rank.")
    if kind == "strong":
        words.append(
            "Karp-Flatt: the serial fraction that alone would explain a speed-up; growing with the ranks, it is"
        )
        words.append("overhead rather than serial work.")
    if kind == "weak":
        words.append("Work grows as the ranks do, so that an ideal speed-up is their number.")
    words += [
        f"{one.label} was not run on one rank: its speed-up is over {one.base} ranks, counted as ideal up to there."
        for one in series
        if one.base > 1 and kind != "none"
    ]
    return " ".join(words)


def _fits(series: Sequence[Series]) -> Table:
    rows = []
    for one in series:
        if (fit := one.fit) is None:
            continue
        within = "-" if math.isnan(fit.low) else f"{percent(fit.low, 1)} to {percent(fit.high, 1)}"
        limit = "none" if math.isinf(fit.limit) else f"{fit.limit:.2g}" if fit.serial < 1 else "-"
        rows.append([one.name, fit.law, percent(fit.serial, 1), within, limit, number(fit.rate), str(fit.points)])
    header = ["series", "law", "serial fraction", "95 % interval", "speed-up at most", "samples/s of one rank", "runs"]
    words = "Least squares of relative errors over all runs of a series; the interval is by the delta method."
    return Table("Laws fitted", header, rows, words)


def _phases(series: Sequence[Series]) -> Table:
    named = [
        phase
        for phase in TIMED
        if any(run.spent.phases.get(phase) for one in series for point in one.points for run in point.runs)
    ]

    def cells(one: Series, point: Point) -> Sequence[str]:
        run = point.typical
        figures = [run.spent.phases.get(phase, 0.0) for phase in named] + [run.spent.hidden]
        return [f"{1000 * seconds / run.steps:.2f}" for seconds in figures]

    header = ["series", "ranks", *named, "hidden"]
    words = (
        "Milliseconds a step, mean over ranks, of the run with the median rate. hidden: communication behind "
        "computing, no part of the step's time."
    )
    return Table("Where a step's time goes", header, _rows(series, cells), words)


def _late(series: Sequence[Series]) -> Table:
    def cells(one: Series, point: Point) -> Sequence[str]:
        run = point.typical
        waited, moved = (1000 * run.spent.phases.get(phase, 0.0) / run.steps for phase in ("wait", "communicate"))
        late = Counter(rank for one in point.runs for rank in one.late)
        ranks = ", ".join(f"{rank} (in {times} of {len(point.runs)} runs)" for rank, times in sorted(late.items()))
        little = run.spent.share("wait", "communicate") < LITTLE
        verdict = "little of either" if little else "waiting" if waited > moved else "moving data"
        why = next((each.why for each in point.runs if each.late), run.why)
        starved = "starved by loading: " if point.starved else ""
        loading = f"{starved}{_within(point.share('load', 'wait'), percent)}"
        return [ranks or "none", "-" if why in ("", "none") else why, f"{waited:.2f}", f"{moved:.2f}", verdict, loading]

    several = [
        replace(one, points=[point for point in one.points if point.ranks > 1 or point.starved]) for one in series
    ]
    header = [
        "series", "ranks", "late rank", "why", "ms to the last arrival", "ms from there to the end", "more of it is",
        "load + wait",
    ]  # fmt: skip
    words = (
        "A collective ends for all when the last rank has come and the data has moved: a step's milliseconds of "
        "waiting until the last arrival, and of communication from there to the finish, mean over ranks, of the run "
        "with the median rate. Starved by loading: a rank loads for a tenth of its time or more, and that is most of "
        "what ranks load and wait."
    )
    return Table("The late rank, and why", header, _rows(several, cells), words)


def _same(series: Sequence[Series], verdicts: Mapping[str, Sameness]) -> Table:
    def cells(one: Series, point: Point) -> Sequence[str]:
        own = [verdicts[run.cell.key] for run in point.runs]
        held = [found for found in own if found.baseline is not None]
        reasons = dict.fromkeys(found.reason for found in sorted(held, key=lambda found: -found.rank))
        deviations = [found.deviation for found in held if found.deviation is not None]
        words = "the baseline" if not held else counted(verdicts, point.runs)
        baseline = ", ".join(dict.fromkeys(found.baseline.cell.key for found in held if found.baseline is not None))
        return [words, f"{max(deviations):.0e}" if deviations else "-", baseline or "-", next(iter(reasons), "-")]

    header = ["series", "ranks", "verdicts", "largest deviation", "against", "why"]
    words = (
        "Each run is compared with the first run of the same experiment (rows, batches, rates, network) on the fewest "
        "ranks. The deviation is the largest relative difference of a step's loss or gradient norm."
    )
    return Table("Is it the same training?", header, _rows(series, cells), words)


def _ends(series: Sequence[Series]) -> Table:
    ended = {run.cell.key: finals(run) for one in series for point in one.points for run in point.runs}
    named = [name for name, key in _FIGURES.items() if any(one[key] is not None for one in ended.values())]

    def cell(point: Point, name: str) -> str:
        values = [value for run in point.runs if (value := ended[run.cell.key][_FIGURES[name]]) is not None]
        middle = spread(values).median
        return "-" if math.isnan(middle) else f"{middle:.2%}" if name.endswith("accuracy") else f"{middle:.4g}"

    header = ["series", "ranks", *named]
    words = "At the end, medians over runs: means over the last epoch, the last validation, the test file."
    return Table(
        "Loss and accuracy", header, _rows(series, lambda _, point: [cell(point, name) for name in named]), words
    )


def _left_out(study: Results) -> Table:
    rows = [[one.cell.key, one.state, one.reason] for one in study.left_out]
    return Table("Left out", ["cell", "state", "reason"], rows, "Cells whose runs are in no figure of this report.")
