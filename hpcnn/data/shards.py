"""Logical shards: the intervals of the file's rows that fix the batches, whatever the number of ranks (rule 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hpcnn.errors import ConfigError, LaunchError

MOST_DEFAULT_SHARDS = 64


def default_logical_shards(rows: int, global_batch: int | None = None) -> int:
    """min(64, global batch, rows): never a function of the ranks. Without a batch (evaluation), min(64, rows)."""
    return max(1, min(MOST_DEFAULT_SHARDS, rows, global_batch or rows))


def check_shards(shards: int) -> int:
    """The number of logical shards, if it can be one; `ConfigError` otherwise."""
    if shards < 1:
        raise ConfigError(f"logical shards {shards}: give --logical-shards a whole number from 1")
    return shards


def logical_shard_bounds(rows: int, shards: int) -> NDArray[np.int64]:
    """int64[shards + 1]: shard v is rows bounds[v] to bounds[v + 1]; sizes differ by at most one."""
    check_shards(shards)
    return np.arange(shards + 1, dtype=np.int64) * rows // shards


def replica_shards(shards: int, replicas: int, replica: int, *, spare: bool = False) -> range:
    """The consecutive logical shards of a replica; counts differ by at most one.

    Raises `LaunchError` if there are more replicas than shards, unless `spare` ones may stay without rows.
    """
    if replicas > shards and not spare:
        raise LaunchError(
            f"{replicas} replicas for {shards} logical shards: each needs one; start at most {shards} ranks, "
            f"or give --logical-shards {replicas} or more"
        )
    return range(shards * replica // replicas, shards * (replica + 1) // replicas)
