"""Random numbers that are a function of what they are for, not of who draws them or in which order.

Every rank can make any part of them alone: a segment its own weights, a replica the order of its own logical shards.
The words are those of Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) as NumPy's
bit generator gives them. NumPy promises that stream for ever; it promises nothing for the distributions built on it,
so none of them is used.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hpcnn.errors import ConfigError

SEED_LIMIT = 2**64


class Purpose(IntEnum):
    """What a stream is for. The numbers are part of every result: never renumber them."""

    INITIAL_WEIGHTS = 1
    SHUFFLE = 2
    VALIDATION = 3
    DROPOUT = 4


def check_seed(seed: int) -> int:
    """The seed, if it is one: a whole number from 0 to 2**64 - 1, else ConfigError."""
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or not 0 <= seed < SEED_LIMIT:
        raise ConfigError(f"seed is {seed!r}; it must be a whole number from 0 to {SEED_LIMIT - 1}")
    return int(seed)


def philox_words(seed: int, stream: tuple[int, int, int], count: int) -> NDArray[np.uint64]:
    """The first `count` words of a stream, uint64[count].

    `stream` is (purpose, a, b). Key words: (seed, purpose). Counter words, low to high: (block, a, b, 0), where block
    runs from 1 (NumPy counts up before each block of four words). So streams do not overlap.
    """
    purpose, a, b = stream
    key = np.array([check_seed(seed), purpose], dtype=np.uint64)
    counter = np.array([0, a, b, 0], dtype=np.uint64)
    return np.asarray(np.random.Philox(key=key, counter=counter).random_raw(count), dtype=np.uint64)


def uniform(seed: int, stream: tuple[int, int, int], count: int) -> NDArray[np.float64]:
    """float64[count], multiples of 2**-53 in [0, 1): exact, so the same bits everywhere."""
    return (philox_words(seed, stream, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
