"""This rank's part of a global batch: what its segments need of the rows that are dealt to its replica."""

from __future__ import annotations

import numpy as np

from hpcnn.data.dataset import aligned_empty
from hpcnn.network.masks import segment_masks
from hpcnn.parallel.inject import injected_epoch, injected_masks, injected_normalisation, injected_rows
from hpcnn.parallel.parts import LocalBatch
from hpcnn.records.evidence import SeenRow
from hpcnn.training.prepare import Prepared
from hpcnn.training.seen import MOST_EPOCHS, seen_rows
from hpcnn.wrappers.contract import Array


class Batches:
    """Batches in one buffer, which is filled anew each time: a batch is good until the next.

    Collective over the replicas where a fault hands rows on. `seen`: the first rows of the first epochs, for rows.csv.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._fault = prepared.config.inject
        self._train, self._shards = injected_rows(self._fault, prepared.links.replicas, prepared.train, prepared.shards)
        self._normalisation = injected_normalisation(self._fault, prepared.normalisation)
        self._place = prepared.rank, *prepared.grid.place(prepared.rank)[:2]
        self._epochs_seen = 0
        self.seen: list[SeenRow] = []
        self._segments = [part.segment for _, part in sorted(prepared.parts.items())]
        self._buffer = aligned_empty((0, *prepared.train.input_shape))

    def of_step(self, epoch: int, step: int) -> LocalBatch:
        """`step` counts from the epoch's first."""
        prepared, order = self._prepared, self._prepared.order
        rows = order.rows(injected_epoch(self._fault, epoch), step, self._shards)
        masks = [
            mask for segment in self._segments for mask in segment_masks(segment, prepared.config.seed, epoch, rows)
        ]
        if self._segments[0].is_first:
            x = self._train.batch(rows, self._normalisation, out=self._memory(len(rows)))
        else:
            x = np.empty((len(rows), 0), np.float32)
        batch = LocalBatch(x, self._train.take_labels(rows), injected_masks(self._fault, masks), order.batch_size(step))
        if step == 0 and self._epochs_seen < MOST_EPOCHS:
            self._epochs_seen += 1
            self.seen += seen_rows(self._place, self._train, self._shards, epoch, rows, batch)
        return batch

    def _memory(self, rows: int) -> Array:
        if len(self._buffer) < rows:
            self._buffer = aligned_empty((rows, *self._prepared.train.input_shape))
        return self._buffer
