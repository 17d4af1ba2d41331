"""This rank's part of a global batch: what its segments need of the rows that are dealt to its replica."""

from __future__ import annotations

import numpy as np

from hpcnn.data.dataset import aligned_empty
from hpcnn.network.masks import segment_masks
from hpcnn.parallel.parts import LocalBatch
from hpcnn.training.prepare import Prepared
from hpcnn.wrappers.contract import Array


class Batches:
    """Batches in one buffer, which is filled anew each time: a batch is good until the next."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._segments = [part.segment for _, part in sorted(prepared.parts.items())]
        self._buffer = aligned_empty((0, *prepared.train.input_shape))

    def of_step(self, epoch: int, step: int) -> LocalBatch:
        """`step` counts from the epoch's first."""
        prepared, order = self._prepared, self._prepared.order
        rows = order.rows(epoch, step, prepared.shards)
        masks = [
            mask for segment in self._segments for mask in segment_masks(segment, prepared.config.seed, epoch, rows)
        ]
        if self._segments[0].is_first:
            x = prepared.train.batch(rows, prepared.normalisation, out=self._memory(len(rows)))
        else:
            x = np.empty((len(rows), 0), np.float32)
        return LocalBatch(x, prepared.train.take_labels(rows), masks, order.batch_size(step))

    def _memory(self, rows: int) -> Array:
        if len(self._buffer) < rows:
            self._buffer = aligned_empty((rows, *self._prepared.train.input_shape))
        return self._buffer
