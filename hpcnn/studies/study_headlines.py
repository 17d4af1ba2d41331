"""A study in a few sentences: what scaled, what it cost, and whether it is still the same training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from hpcnn.studies.scaling import Fit, Spread
from hpcnn.studies.study_reading import Results
from hpcnn.studies.study_sameness import OUTCOMES, Sameness, counted
from hpcnn.studies.study_series import Point, Series

WORTH_A_WORD = 0.05
"""Share of the time below which communication and waiting are left to the tables."""


def percent(value: float, digits: int = 0) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.{digits}f} %"


def number(value: float) -> str:
    """Three or more significant digits."""
    if math.isnan(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def ranks_words(ranks: int) -> str:
    return f"{ranks} rank{'' if ranks == 1 else 's'}"


def headlines(study: Results, series: Sequence[Series], verdicts: Mapping[str, Sameness]) -> list[str]:
    """Sentences, the most important first. Of a study without a run that counts, that."""
    if not study.measured:
        return [f"None of {len(study.cells)} cells has a run that counts.", *_left(study)]
    return [
        *(_scaled(one) for one in series if len(one.points) > 1 and one.scaling != "none"),
        *_fastest(series),
        *_costs(series),
        *_starved(series),
        *_same(study, verdicts),
        *_left(study),
    ]


def _scaled(series: Series) -> str:
    last = series.points[-1]
    kind = "Strong" if series.scaling == "strong" else "Weak"
    over = ranks_words(series.base)
    words = (
        f"{kind} scaling, {series.label}: {ranks_words(last.ranks)} train {_times(last.speedup)} the samples a second "
        f"of {over}, efficiency {percent(last.efficiency.median)}."
    )
    return words if series.fit is None else f"{words} {_law(series.fit)}"


def _times(speedup: Spread) -> str:
    low, middle, high = f"{speedup.low:.2f}", f"{speedup.median:.2f}", f"{speedup.high:.2f}"
    return f"{middle} times" if low == high else f"{middle} ({low} to {high}) times"


def _law(fit: Fit) -> str:
    within = "" if math.isnan(fit.low) else f" (95 %: {percent(fit.low, 1)} to {percent(fit.high, 1)})"
    words = f"{fit.law}'s law fits a serial fraction of {percent(fit.serial, 1)}{within}"
    if fit.serial >= 1:
        return f"{words}: more ranks do not make it faster."
    if fit.law == "Gustafson":
        return f"{words}."
    if fit.serial <= 0 or fit.low <= 0:
        return f"{words}: no limit to the speed-up can be told from these runs."
    return f"{words}: no number of ranks would make it more than {fit.limit:.2g} times as fast."


def _fastest(series: Sequence[Series]) -> list[str]:
    """Of the cells that are no scaling, which was the fastest."""
    points = [(point, one) for one in series if one.scaling == "none" for point in one.points]
    if len(points) < 2:
        return []
    points.sort(key=lambda pair: -pair[0].rate.median)
    (first, of), (last, other) = points[0], points[-1]
    return [
        f"Fastest of {len(points)}: {of.name} on {ranks_words(first.ranks)}, {number(first.rate.median)} samples/s; "
        f"slowest: {other.name} on {ranks_words(last.ranks)}, {number(last.rate.median)} samples/s."
    ]


def _costs(series: Sequence[Series]) -> list[str]:
    """Of every series on its most ranks, what of the ranks' time was not their own work."""
    told = []
    for one in series:
        last = one.points[-1]
        moved, waited = last.share("communicate").median, last.share("wait").median
        if last.ranks > 1 and max(moved, waited) >= WORTH_A_WORD:
            told.append(f"{one.name} on {ranks_words(last.ranks)} {percent(moved)} and {percent(waited)}{_who(last)}")
    words = "What it cost: communication, and waiting for the last rank, took of the ranks' time: "
    return [f"{words}{'; '.join(told)}."] if told else []


def _who(point: Point) -> str:
    late = Counter(rank for one in point.runs for rank in one.late)
    if not late:
        return ""
    rank, times = min(late.items(), key=lambda item: (-item[1], item[0]))
    return f" (rank {rank} was late in {times} of {len(point.runs)} runs)"


def _starved(series: Sequence[Series]) -> list[str]:
    told = []
    for one in series:
        if points := [point for point in one.points if point.starved]:
            shares = [point.share("load", "wait").median for point in points]
            ends = dict.fromkeys((percent(min(shares)), percent(max(shares))))
            ranks = ", ".join(str(point.ranks) for point in points)
            told.append(f"{one.name} on {ranks} rank{'' if ranks == '1' else 's'} {' to '.join(ends)}")
    words = "Starved by loading: loading, and waiting for who loads, took of the ranks' time: "
    return [f"{words}{'; '.join(told)}."] if told else []


def _same(study: Results, verdicts: Mapping[str, Sameness]) -> list[str]:
    counts = Counter(one.verdict for one in verdicts.values() if one.verdict)
    if not counts:
        return ["Whether these are the same training cannot be told: no two runs are of one experiment."]
    lines = []
    if set(counts) <= set(OUTCOMES[:2]):
        lines.append(f"The same training: {_against(study, verdicts)}.")
    else:
        first = next(one for one in verdicts.values() if one.verdict in OUTCOMES[2:])
        lines.append(
            f"Not all the same training: {_against(study, verdicts)}; first {first.run.cell.key}: {first.reason}."
        )
    if sum(one.baseline is None for one in verdicts.values()) > 1:
        lines.append("Other batches, rates or rows make other experiments, each held against its own baseline.")
    return lines


def _against(study: Results, verdicts: Mapping[str, Sameness]) -> str:
    return f"{counted(verdicts, study.measured)} against the run on the fewest ranks"


def _left(study: Results) -> list[str]:
    left = len(study.left_out)
    return [f"{left} of {len(study.cells)} cells are left out; their reasons are listed."] if left else []
