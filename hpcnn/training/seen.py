"""Which rows, labels and masks a rank trained on, for rows.csv."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.dataset import Dataset
from hpcnn.parallel.parts import LocalBatch
from hpcnn.records.evidence import SeenRow
from hpcnn.wrappers.contract import Array

MOST_ROWS = 64
"""Rows of an epoch that are looked at: the first of each logical shard, so that they are the same on any ranks."""
MOST_EPOCHS = 3

Place = tuple[int, int, int]
"""Rank, replica and stage."""


def seen_rows(
    place: Place, dataset: Dataset, shards: range, epoch: int, rows: NDArray[np.int64], batch: LocalBatch
) -> Iterator[SeenRow]:
    """The first rows of an epoch's first `batch`, which are the file's `rows`, in the order of the deal."""
    rank, replica, stage = place
    first_stage = batch.x.ndim > 2
    for number, row in enumerate(rows[: max(0, min(len(shards), MOST_ROWS - shards.start))].tolist()):
        local, label = row - dataset.first_row, int(batch.labels[number])
        x = batch.x[number].astype(np.float64) if first_stage else None
        masks, kept, units = _seen_masks([mask[number] for mask in batch.masks])
        yield SeenRow(
            rank=rank, replica=replica, stage=stage, epoch=epoch, row=row,
            features=_digest(dataset.features[local].astype("<f4")), label=label,
            label_before=_label(dataset, local - 1), label_after=_label(dataset, local + 1),
            mean=None if x is None else float(x.mean()), deviation=None if x is None else float(x.std()),
            masks=masks, kept=kept, units=units,
        )  # fmt: skip


def _digest(values: NDArray[np.generic]) -> str:
    return hashlib.blake2b(values.tobytes(), digest_size=8).hexdigest()


def _seen_masks(masks: Sequence[Array]) -> tuple[str, int, int]:
    """A digest that does not depend on which stage holds which dropout: those of all stages add up."""
    total = sum(int(_digest(mask.astype("<f4")), 16) for mask in masks) % 2**64
    return f"{total:016x}", sum(int(np.count_nonzero(mask)) for mask in masks), sum(mask.size for mask in masks)


def _label(dataset: Dataset, local: int) -> int | None:
    assert dataset.labels is not None
    return int(dataset.labels[local]) if 0 <= local < len(dataset.labels) else None
