"""How far several runs agree, each pair of them: the share of equal predictions, and how far losses are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hpcnn.studies.finals import agreement
from hpcnn.studies.reading import Run, epochs_of

CELL = 8


@dataclass(frozen=True)
class Pair:
    """Two runs: share of equal predictions, and the relative difference of the last epoch's training loss; None where
    there is nothing to compare."""

    runs: tuple[str, str]
    predictions: float | None
    loss: float | None


def agreement_pairs(runs: Sequence[Run]) -> list[Pair]:
    """Every pair, in the order of the runs. Raises nothing: runs of other data just do not compare."""
    return [
        Pair((left.name, right.name), _predictions(left, right), _loss(left, right))
        for left, right in combinations(runs, 2)
    ]


def _predictions(left: Run, right: Run) -> float | None:
    found = agreement(left, right, together=False)
    return 1 - found.differing / found.rows if found.rows else None


def _loss(left: Run, right: Run) -> float | None:
    ours, theirs = epochs_of(left), epochs_of(right)
    if not ours or not theirs or ours[-1].epoch != theirs[-1].epoch or not ours[-1].loss:
        return None
    return abs(theirs[-1].loss - ours[-1].loss) / ours[-1].loss


def pairs_to_dicts(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """For JSON."""
    return [{"runs": list(pair.runs), "predictions": pair.predictions, "loss": pair.loss} for pair in pairs]


def agreement_lines(runs: Sequence[Run]) -> list[str]:
    """A matrix for people: above the diagonal the share of equal predictions, below it how far the losses are apart."""
    names = [run.name for run in runs]
    pairs = {pair.runs: pair for pair in agreement_pairs(runs)}
    lines = [
        "agreement of each pair: equal predictions above the diagonal, last training loss apart below it",
        *(f"{place:>4}  {name}" for place, name in enumerate(names, start=1)),
        "     " + "".join(f"{place:>{CELL}}" for place in range(1, 1 + len(names))),
    ]
    for row, name in enumerate(names):
        cells = []
        for column, other in enumerate(names):
            above = column > row
            pair = pairs.get((name, other) if above else (other, name))
            share = None if pair is None else pair.predictions if above else pair.loss
            cells.append("-" if share is None else f"{share:.2%}")
        lines.append(f"{row + 1:>4} " + "".join(f"{cell:>{CELL}}" for cell in cells))
    return lines
