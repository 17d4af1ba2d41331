"""The order of rows in an epoch (rule 3): logical shards are shuffled, then dealt like cards into global batches.

    shard 0:  a0 a1 a2        round 0   round 1   round 2      batches of 4
    shard 1:  b0 b1           a0 b0 c0  a1 b1 c1  a2 c2        a0 b0 c0 a1 | b1 c1 a2 c2
    shard 2:  c0 c1 c2

Everything is a function of (rows, logical shards, batch, validation fraction, seed), so that any number of ranks sees
the same batches and each can compute any other's counts. Full rounds have a closed form; only the last few rounds,
where short shards have run out, are listed.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.shards import logical_shard_bounds
from hpcnn.errors import ConfigError
from hpcnn.network.counter import Purpose, check_seed, philox_words

Indices = NDArray[np.int64]
EPOCHS_KEPT = 2


class BatchOrder:
    """Which file rows make up each global batch.

    training_rows: their number over the whole file. shard_counts: int64[logical_shards], training rows of each shard.
    Raises `ConfigError` if a setting is out of range or no training row is left.
    """

    def __init__(
        self, rows: int, logical_shards: int, global_batch: int, validation_fraction: float, seed: int
    ) -> None:
        if global_batch < 1:
            raise ConfigError(f"global batch {global_batch}: give --global-batch a whole number from 1")
        self.rows_in_file = rows
        self.logical_shards = logical_shards
        self.global_batch = global_batch
        self.seed = check_seed(seed)
        self.bounds = logical_shard_bounds(rows, logical_shards)
        self.validation_counts = _validation_counts(self.bounds, validation_fraction)
        self.shard_counts: Indices = np.diff(self.bounds) - self.validation_counts
        self.training_rows = int(self.shard_counts.sum())
        if not self.training_rows:
            raise ConfigError(
                f"validation fraction {validation_fraction} of {rows} rows leaves none to train on; "
                "give a smaller --validation-fraction"
            )
        self.steps_per_epoch = -(-self.training_rows // global_batch)
        self._full_rounds = int(self.shard_counts.min())
        self._tail_round, self._tail_shard = _tail(self.shard_counts, self._full_rounds)
        self._kept: dict[tuple[int, range], tuple[Indices, Indices]] = {}

    def batch_size(self, step: int) -> int:
        """Rows of the global batch of a step of an epoch: the global batch, or what is left in the last step."""
        low, high = self._positions(step)
        return high - low

    def count(self, step: int, shards: range) -> int:
        """How many rows of a global batch lie in consecutive logical shards; needs no permutation."""
        low, high = self._positions(step)
        full = self._full_rounds * self.logical_shards
        tail = self._tail_shard[max(low - full, 0) : max(high - full, 0)]
        in_tail = np.count_nonzero((tail >= shards.start) & (tail < shards.stop))
        return self._dealt(min(high, full), shards) - self._dealt(min(low, full), shards) + int(in_tail)

    def rows(self, epoch: int, step: int, shards: range) -> Indices:
        """int64 file rows of a global batch that lie in consecutive logical shards, in the order of the deal."""
        rounds, shard = self._deal(step, shards)
        order, starts = self._shuffled(epoch, shards)
        rows: Indices = order[starts[shard - shards.start] + rounds]
        return rows

    def validation_rows(self, shard: int) -> Indices:
        """int64 file rows of a logical shard that are kept for validation, ascending; a function of (seed, shard)."""
        return self._split(shard)[0]

    def shard_training_rows(self, shard: int) -> Indices:
        """int64 file rows of a logical shard to train on, ascending."""
        return self._split(shard)[1]

    def _positions(self, step: int) -> tuple[int, int]:
        """Positions in the deal of a global batch: [low, high)."""
        if not 0 <= step < self.steps_per_epoch:
            raise IndexError(f"step {step} of an epoch of {self.steps_per_epoch}")
        return step * self.global_batch, min((step + 1) * self.global_batch, self.training_rows)

    def _dealt(self, position: int, shards: range) -> int:
        """Rows of `shards` among the first `position` of the full rounds."""
        rounds, rest = divmod(position, self.logical_shards)
        return rounds * len(shards) + min(max(rest - shards.start, 0), len(shards))

    def _deal(self, step: int, shards: range) -> tuple[Indices, Indices]:
        """Round and logical shard of each row of a global batch that lies in `shards`, in the order of the deal."""
        low, high = self._positions(step)
        full = self._full_rounds * self.logical_shards
        first, last = min(low, full), min(high, full)
        rounds = np.arange(first // self.logical_shards, -(-last // self.logical_shards), dtype=np.int64)[:, None]
        shard = np.arange(shards.start, shards.stop, dtype=np.int64)[None, :]
        position = rounds * self.logical_shards + shard
        round_of, shard_of = np.nonzero((position >= first) & (position < last))
        tail = slice(max(low - full, 0), max(high - full, 0))
        own = (self._tail_shard[tail] >= shards.start) & (self._tail_shard[tail] < shards.stop)
        return (
            np.concatenate([rounds[round_of, 0], self._tail_round[tail][own]]),
            np.concatenate([shard[0, shard_of], self._tail_shard[tail][own]]),
        )

    def _split(self, shard: int) -> tuple[Indices, Indices]:
        rows = np.arange(self.bounds[shard], self.bounds[shard + 1], dtype=np.int64)
        drawn = self._permutation(Purpose.VALIDATION, 0, shard, len(rows))[: self.validation_counts[shard]]
        kept = np.zeros(len(rows), bool)
        kept[drawn] = True
        return rows[kept], rows[~kept]

    def _shuffled(self, epoch: int, shards: range) -> tuple[Indices, Indices]:
        """The shuffled training rows of consecutive shards, one after another, and where each shard's begin."""
        if (epoch, shards) not in self._kept:
            while len(self._kept) >= EPOCHS_KEPT:
                del self._kept[next(iter(self._kept))]
            orders = [np.empty(0, np.int64)]
            for shard in shards:
                rows = self.shard_training_rows(shard)
                orders.append(rows[self._permutation(Purpose.SHUFFLE, epoch, shard, len(rows))])
            starts = np.cumsum([len(order) for order in orders], dtype=np.int64)
            self._kept[epoch, shards] = np.concatenate(orders), starts
        return self._kept[epoch, shards]

    def _permutation(self, purpose: Purpose, epoch: int, shard: int, count: int) -> Indices:
        return np.argsort(philox_words(self.seed, (purpose, epoch, shard), count), kind="stable")


def _validation_counts(bounds: Indices, fraction: float) -> Indices:
    """floor(f * end) - floor(f * start) of each shard: they add up to floor(f * rows), whatever the shards."""
    if not 0 <= fraction < 1:
        raise ConfigError(f"validation fraction {fraction}: give --validation-fraction a number from 0 to below 1")
    exact = Fraction(str(fraction))  # the decimal that was written: 0.29 of 100 rows is 29, not 28
    before = [exact.numerator * int(bound) // exact.denominator for bound in bounds]
    return np.array([end - start for start, end in pairwise(before)], np.int64)


def _tail(counts: Indices, full_rounds: int) -> tuple[Indices, Indices]:
    """Round and shard of the deals after the full rounds. Counts differ by at most two, so the list is short."""
    deals = [(deal, shard) for deal in range(full_rounds, int(counts.max())) for shard in np.flatnonzero(counts > deal)]
    table = np.array(deals, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
