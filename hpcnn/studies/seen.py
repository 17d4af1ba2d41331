"""Faults told by rows.csv: other rows, labels, masks or scaling than in the baseline, row by row.

Rule 3 makes the rows of a batch, rule 2 their masks, a function of settings alone, so what differs is no float noise.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcnn.records.evidence import SeenRow
from hpcnn.studies.reading import Run

SCALING = 1e-5
"""Relative difference of a row's mean or deviation that the order of sums in a normalisation, or float32, can make."""

MOST_OF_ROWS = 0.75
"""Share of rows by which a shift of labels is known; at the ends of what a rank holds another label may stand."""

_Rows = Mapping[int, Sequence[SeenRow]]
"""By epoch."""


@dataclass(frozen=True)
class Difference:
    """What two runs computed with differs: in words, and whether that names a fault."""

    words: str
    is_cause: bool = True


def row_differences(baseline: Run, run: Run) -> list[Difference]:
    """How the first rows of epochs that both looked at differ; empty where they do not."""
    left, right = _by_epoch(baseline), _by_epoch(run)
    epochs = sorted(left.keys() & right.keys())
    other = [epoch for epoch in epochs if _rows(left[epoch]) != _rows(right[epoch])]
    same = {epoch: _pairs(left[epoch], right[epoch]) for epoch in epochs if epoch not in other}
    found = list(_other_rows(baseline, run, other, epochs))
    pairs = [pair for some in same.values() for pair in some]
    for told in (_labels, _dropout, _scaling):
        found += told(baseline, run, pairs)
    return found


def _by_epoch(run: Run) -> _Rows:
    found: dict[int, list[SeenRow]] = defaultdict(list)
    for row in run.rows:
        found[row.epoch].append(row)
    return found


def _rows(seen: Sequence[SeenRow]) -> list[Counter[str]]:
    """Rows of an epoch, of each stage, in an order that is the same for one stage and for many."""
    stages = sorted({row.stage for row in seen})
    counted = [Counter(row.features for row in seen if row.stage == stage) for stage in stages]
    return counted[:1] if all(one == counted[0] for one in counted) else counted


def _other_rows(baseline: Run, run: Run, other: Sequence[int], epochs: Sequence[int]) -> Iterator[Difference]:
    if not other:
        return
    for one in (run, baseline):
        if ranks := _on_the_same_rows(one, other[0]):
            yield Difference(f"ranks {' and '.join(map(str, ranks))} train on the same rows, in {one.name}")
            return
    for one, another in ((run, baseline), (baseline, run)):
        if other[0] > epochs[0] and _repeats(one, epochs) and not _repeats(another, epochs):
            yield Difference(
                f"the shuffle repeats: epoch {epochs[0]} deals its rows in later epochs again, in {one.name}"
            )
            return
    yield Difference(f"the first batch of epoch {other[0]} has other rows in {run.name} than in {baseline.name}", False)


def _on_the_same_rows(run: Run, epoch: int) -> list[int]:
    """Ranks, two at least, that hold the same stage of other replicas and trained on the very same rows."""
    held: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
    ranks: dict[int, list[SeenRow]] = defaultdict(list)
    for row in _by_epoch(run)[epoch]:
        ranks[row.rank].append(row)
    for rank, seen in ranks.items():
        held[seen[0].stage, tuple(row.features for row in seen)].append(rank)
    return next((sorted(same) for _, same in sorted(held.items()) if len(same) > 1), [])


def _repeats(run: Run, epochs: Sequence[int]) -> bool:
    seen = _by_epoch(run)
    return all(_rows(seen[epoch]) == _rows(seen[epochs[0]]) for epoch in epochs)


@dataclass(frozen=True)
class _Whole:
    """A row over all stages."""

    features: str
    label: int
    label_before: int | None
    label_after: int | None
    mean: float | None
    deviation: float | None
    masks: int
    kept: int
    units: int


_Pair = tuple[_Whole, _Whole]


def _whole(seen: Sequence[SeenRow]) -> list[_Whole]:
    """Rows in the order of their features; the stages of a replica add their masks, the last one has the labels."""
    found: dict[tuple[int, int], list[SeenRow]] = defaultdict(list)
    for row in seen:
        found[row.replica, row.row].append(row)
    rows = []
    for stages in found.values():
        first, last = min(stages, key=_stage), max(stages, key=_stage)
        rows.append(
            _Whole(
                first.features, last.label, last.label_before, last.label_after, first.mean, first.deviation,
                sum(int(row.masks, 16) for row in stages) % 2**64, sum(row.kept for row in stages),
                sum(row.units for row in stages),
            )
        )  # fmt: skip
    return sorted(rows, key=lambda row: (row.features, row.masks))


def _stage(row: SeenRow) -> int:
    return row.stage


def _pairs(left: Sequence[SeenRow], right: Sequence[SeenRow]) -> list[_Pair]:
    return list(zip(_whole(left), _whole(right), strict=False))


def _labels(baseline: Run, run: Run, pairs: Sequence[_Pair]) -> Iterator[Difference]:
    other = [(ours, theirs) for ours, theirs in pairs if ours.label != theirs.label]
    if not other:
        return
    for words, name in (("after", "label_after"), ("before", "label_before")):
        known = [(beside, theirs.label) for ours, theirs in pairs if (beside := getattr(ours, name)) is not None]
        shifted = sum(beside == label for beside, label in known)
        if shifted >= MOST_OF_ROWS * max(len(known), 1):
            yield Difference(
                f"labels are shifted by a row: {shifted} of {len(known)} rows have in {run.name} the label of the row "
                f"{words} them in {baseline.name}"
            )
            return
    yield Difference(
        f"{len(other)} of {len(pairs)} rows have other labels in {run.name} than in {baseline.name}", False
    )


def _dropout(baseline: Run, run: Run, pairs: Sequence[_Pair]) -> Iterator[Difference]:
    other = sum(ours.masks != theirs.masks for ours, theirs in pairs)
    if not other:
        return
    shares = [_kept([pair[side] for pair in pairs]) for side in (0, 1)]
    yield Difference(
        f"dropout differs: {other} of {len(pairs)} rows have other masks, that keep {shares[1]:.1%} of the units in "
        f"{run.name}, {shares[0]:.1%} in {baseline.name}"
    )


def _kept(rows: Sequence[_Whole]) -> float:
    return sum(row.kept for row in rows) / max(sum(row.units for row in rows), 1)


def _scaling(baseline: Run, run: Run, pairs: Sequence[_Pair]) -> Iterator[Difference]:
    for ours, theirs in pairs:
        values = ours.mean, ours.deviation, theirs.mean, theirs.deviation
        if None in values:
            continue
        mean, deviation, other_mean, other_deviation = (float(value) for value in values if value is not None)
        size = max(math.hypot(mean, deviation), 1e-30)
        if max(abs(mean - other_mean), abs(deviation - other_deviation)) > SCALING * size:
            yield Difference(
                f"normalisation differs: the same row has mean {other_mean:.6g} and deviation {other_deviation:.6g} in "
                f"{run.name}, {mean:.6g} and {deviation:.6g} in {baseline.name}"
            )
            return
