"""Dropout masks as a function of (seed, layer, epoch, file row, unit), so that no cut of the work changes them.

Philox would need a stream a row; a mask needs millions of draws a second. So words come from nested SplitMix64
(Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): each level's output seeds the
next, all rows and units at once, and each word gives two 32-bit draws.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from hpcnn.network.architecture import Segment
from hpcnn.network.counter import check_seed

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def splitmix64(key: NDArray[np.uint64], index: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Output number `index` (from 0) of SplitMix64 seeded with `key`, elementwise with broadcasting."""
    word = np.asarray(key + (index + np.uint64(1)) * _GOLDEN)
    shifted = np.empty_like(word)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word ^= np.right_shift(word, np.uint64(shift), out=shifted)
        word *= np.uint64(factor)
    word ^= np.right_shift(word, np.uint64(31), out=shifted)
    return word


def dropout_mask(
    seed: int, layer_index: int, epoch: int, rows: NDArray[np.int64], units: int, rate: float
) -> NDArray[np.float32]:
    """float32[n, units]: 0 with probability `rate` (to 2**-32), else 1 / (1 - rate), for n file rows."""
    key = np.array([check_seed(seed)], dtype=np.uint64)
    for level in (layer_index, epoch):
        key = splitmix64(key, np.array([level], dtype=np.uint64))
    row_keys = splitmix64(key, np.asarray(rows).astype(np.uint64))
    words = splitmix64(row_keys[:, np.newaxis], np.arange((units + 1) // 2, dtype=np.uint64))
    # The low half of a word is the even unit's draw, on machines of either byte order.
    draws = words.astype("<u8", copy=False).view("<u4")[:, :units]
    threshold = np.uint32(min(round(rate * 2**32), 2**32 - 1))
    return np.multiply(draws >= threshold, np.float32(1 / (1 - rate)), dtype=np.float32)


def segment_masks(segment: Segment, seed: int, epoch: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], ...]:
    """One mask per dropout of the segment in order, float32[n, *shape] for n file rows."""
    return tuple(
        dropout_mask(seed, site.layer_index, epoch, rows, prod(site.shape), site.rate).reshape(-1, *site.shape)
        for site in segment.dropouts
    )
