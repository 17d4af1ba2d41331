"""Where the time of a study's run went: from its timing.csv, as its ranks measured it, warm-up apart.

What of a collective was waiting ends when the last rank has arrived; from there to its end data moved. So a run whose
ranks wait has a late rank, and a run that communicates has a slow network or too little work a rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn.errors import ResultsError
from hpcnn.records.arrivals import Lateness
from hpcnn.records.phases import PHASES, Tally
from hpcnn.records.run_folder import TIMING_COLUMNS, RankTimes
from hpcnn.studies.reading import Run
from hpcnn.studies.tables import numbers, read_table, whole_numbers
from hpcnn.training.late import late_lines
from hpcnn.training.summary import training_seconds

APART = ("evaluate", "checkpoint")
"""What a rate of training does not count."""
STARVED = 0.1
"""Share of a rank's time in loading that is worth a word: a prefetch that keeps up leaves next to none."""

_FIGURES = ("seconds", "minimum", "maximum", "hidden_seconds")


def read_times(path: Path, manifest: Mapping[str, Any]) -> list[RankTimes]:
    """What each rank of a run measured, from its timing.csv and, of who was late, its run.json. Raises ResultsError."""
    table = read_table(path, TIMING_COLUMNS)
    counts = {name: whole_numbers(path, table, name) for name in ("rank", "epoch", "count", "bytes")}
    figures = {name: numbers(path, table, name) for name in _FIGURES}
    rows: dict[int, list[tuple[int, str, Tally]]] = defaultdict(list)
    hosts: dict[int, str] = {}
    for place, (host, phase) in enumerate(zip(table["host"], table["phase"], strict=True)):
        if phase not in PHASES:
            raise ResultsError(f"{path}: line {place + 2}, column phase: {phase!r} is no phase that this version knows")
        whole = {name: int(column[place]) for name, column in counts.items()}
        tally = Tally(
            count=whole["count"], bytes=whole["bytes"], **{name: float(figures[name][place]) for name in _FIGURES}
        )
        rows[whole["rank"]].append((whole["epoch"], phase, tally))
        hosts[whole["rank"]] = host
    lateness = _lateness(manifest)
    return [
        RankTimes(rank, hosts[rank], sum(tally.seconds for *_, tally in rows[rank]), rows[rank],
                  lateness.get(rank, Lateness()))
        for rank in sorted(rows)
    ]  # fmt: skip


def _lateness(manifest: Mapping[str, Any]) -> dict[int, Lateness]:
    """By rank; empty for a run that did not record it."""
    recorded = manifest.get("lateness")
    if not isinstance(recorded, list):
        return {}
    fields = set(Lateness._fields)
    return {
        rank: Lateness(**one) for rank, one in enumerate(recorded) if isinstance(one, dict) and one.keys() == fields
    }


@dataclass(frozen=True)
class Spent:
    """Seconds in epochs (those of warm-up steps are not there), evaluation and checkpoints apart.

    `phases`: means over ranks, and what part of their sum each is in `share`. `hidden`: communication behind compute.
    """

    seconds: float
    phases: Mapping[str, float]
    hidden: float
    loading: float
    """The largest share of loading of any rank."""

    @property
    def total(self) -> float:
        return sum(self.phases.values())

    def share(self, *phases: str) -> float:
        return sum(self.phases.get(phase, 0.0) for phase in phases) / self.total if self.total else 0.0

    @property
    def starved(self) -> bool:
        """Whether ranks are without rows to compute on: they load, or wait for one that loads."""
        return self.loading >= STARVED and self.loading >= self.share("load", "wait") / 2


def spent(times: Sequence[RankTimes]) -> Spent:
    of_ranks = [rank_phases(one) for one in times]
    totals = [sum(one.values()) for one in of_ranks]
    names = [phase for phase in PHASES if any(phase in one for one in of_ranks)]
    return Spent(
        seconds=training_seconds(times),
        phases={phase: sum(one.get(phase, 0.0) for one in of_ranks) / len(of_ranks) for phase in names},
        hidden=sum(tally.hidden_seconds for one in times for epoch, _, tally in one.rows if epoch) / max(len(times), 1),
        loading=max((one.get("load", 0.0) / sum_ for one, sum_ in zip(of_ranks, totals, strict=True) if sum_),
                    default=0.0),
    )  # fmt: skip


def rank_phases(one: RankTimes) -> dict[str, float]:
    """Seconds by phase in epochs, evaluation and checkpoints apart."""
    found: dict[str, float] = defaultdict(float)
    for epoch, phase, tally in one.rows:
        if epoch > 0 and phase not in APART:
            found[phase] += tally.seconds
    return found


def late_ranks(times: Sequence[RankTimes]) -> tuple[list[int], str]:
    """Ranks that kept the others waiting, and in words why; of a single rank nothing, of a run that did not record when
    its ranks arrived that it is not known."""
    lines = [line.removeprefix("late: ") for line in late_lines(times, training_seconds(times))]
    if len(times) > 1 and not lines:
        return [], "not recorded"
    return [int(found[1]) for line in lines if (found := re.match(r"rank (\d+) ", line))], "; ".join(lines)


def step_seconds(run: Run, times: Sequence[RankTimes], warmup: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """When each step ended, in seconds of training since the warm-up's end; nan of warm-up steps. Steps of an epoch
    count as equally long, since only epochs are timed."""
    ends = np.full(run.steps, np.nan)
    before = 0.0
    for epoch in np.unique(run.losses["epoch"]):
        mine = np.flatnonzero((run.losses["epoch"] == epoch) & (run.losses["step"] >= warmup))
        took = training_seconds([_only(one, {int(epoch)}) for one in times])
        if len(mine):
            ends[mine] = before + took * np.arange(1, len(mine) + 1) / len(mine)
            before += took
    return ends


def _only(one: RankTimes, epochs: Collection[int]) -> RankTimes:
    return RankTimes(one.rank, one.host, one.wall_seconds, [row for row in one.rows if row[0] in epochs], one.lateness)
