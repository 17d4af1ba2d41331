"""What a run really computed with, in two small tables: what tells a fault from float noise, when losses alone do not.

`rows.csv` holds the first rows of the first batch of the first epochs, as they went into the network. `replicas.csv`
holds a digest of each rank's weights at the end of each epoch, and of the first epoch what the rank brought to the sum
of the first step's gradients. Both are taken where the work is done, not from how it was planned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SeenRow:
    """A row as one rank trained on it; the ranks of a replica's stages each tell of their own.

    `features`, `masks`: digests of raw values and of the row's dropout masks. `label_before`, `label_after`: of the
    rows beside it in the file, None where this rank holds none. `mean`, `deviation`: of what went into the first layer,
    None in later stages. `kept` of `units`: what dropout left.
    """

    rank: int
    replica: int
    stage: int
    epoch: int
    row: int
    features: str
    label: int
    label_before: int | None
    label_after: int | None
    mean: float | None
    deviation: float | None
    masks: str
    kept: int
    units: int


@dataclass(frozen=True, kw_only=True)
class SeenReplica:
    """One rank's epoch. `step`: the first that it trained in it.

    `gradient_norm`: of the rank's own rows in that step. `sum_norm`: of the sum over replicas, as this rank has it.
    `share`: how much of the sum the rank brought (its projection on the sum, over the sum's norm); those of all
    replicas add up to 1. The three are None where ranks add nothing, or the framework does it within, and in later
    epochs. `weights`: a digest of them at the epoch's end.
    """

    rank: int
    replica: int
    stage: int
    epoch: int
    step: int
    gradient_norm: float | None
    sum_norm: float | None
    share: float | None
    weights: str


def columns(kind: type[Any]) -> tuple[str, ...]:
    """Of its table: the run, then its fields."""
    return ("run", *(item.name for item in dataclasses.fields(kind)))


def cells(run: str, rows: Iterable[Any]) -> Iterable[tuple[Any, ...]]:
    return ((run, *dataclasses.astuple(row)) for row in rows)
