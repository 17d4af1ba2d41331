"""Rows in memory instead of a CSV: the same shards, batches and checks, so that the same numbers train the same bits.

Every rank holds all rows, as a script that reads or makes them does, and keeps the share of its own shards.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.agree import Communicator, attempt, communicator
from hpcnn.data.cells import data_error
from hpcnn.data.dataset import Dataset, load_dataset
from hpcnn.data.format import CsvFormat
from hpcnn.data.shape import ImageShape
from hpcnn.data.shards import check_shards, default_logical_shards, logical_shard_bounds, replica_shards
from hpcnn.errors import DataError

NAME = "(arrays)"
"""Stands where a file's path would, in settings and messages."""

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Arrays:
    """`x`: numbers, (rows, channels, height, width), (rows, height, width) of one channel, or (rows, features).

    `y`: class numbers (rows,), None without labels.
    """

    x: Any
    y: Any = None


@dataclass(frozen=True, kw_only=True)
class ArrayFormat(CsvFormat):
    """Arrays have columns, but neither header nor bytes."""

    def describe(self) -> str:
        return f"arrays, {self.features} features, {'no label' if self.label_column is None else 'with labels'}"


def source_of(dataset: Any) -> str | Arrays:
    """What a person may give for rows: the path of a CSV, (x, y), or x alone."""
    if isinstance(dataset, str | os.PathLike):
        return os.fsdecode(dataset)
    if isinstance(dataset, tuple | list) and len(dataset) == 2:
        return Arrays(*(_array(one) for one in dataset))
    if isinstance(dataset, tuple):
        raise DataError(f"rows are the path of a CSV, (x, y) or x alone, not a tuple of {len(dataset)}")
    return Arrays(_array(dataset))


def _array(values: Any) -> Any:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise DataError(f"rows that are no path must be arrays of one shape: {error}") from None


def load_rows(source: str | Arrays, *, header: str, label_column: str, **settings: Any) -> Dataset:
    """Collective: `load_dataset` of a path, `array_dataset` of arrays."""
    if isinstance(source, Arrays):
        return array_dataset(source, **settings)
    return load_dataset(source, header=header, label_column=label_column, **settings)


def array_dataset(
    arrays: Arrays,
    *,
    comm: Communicator | None = None,
    logical_shards: int | None = None,
    global_batch: int | None = None,
    classes: int | None = None,
    input_shape: ImageShape | None = None,
    need_labels: bool = False,
    spare_ranks: bool = False,
) -> Dataset:
    """Collective: `load_dataset` for rows that every rank holds.

    Raises DataError, the same on all ranks, for arrays that do not fit or differ from rank to rank.
    """
    comm = communicator(comm)
    if input_shape is None or classes is None:
        raise ValueError("arrays need an input shape and a number of classes")
    x, y = attempt(comm, lambda: (_features(arrays.x, input_shape), _labels(arrays, classes, need_labels)))
    _same_on_all_ranks(comm, x, y)
    count = default_logical_shards(len(x), global_batch) if logical_shards is None else check_shards(logical_shards)
    shards = replica_shards(count, comm.size, comm.rank, spare=spare_ranks)
    bounds = logical_shard_bounds(len(x), count)
    own = slice(int(bounds[shards.start]), int(bounds[shards.stop]))
    labelled = y is not None
    return Dataset(
        path=NAME,
        features=x[own].reshape(-1, *input_shape),
        labels=None if y is None else y[own],
        classes=classes,
        first_row=own.start,
        rows=len(x),
        logical_shards=count,
        shards=shards,
        format=ArrayFormat(header=False, label_column=0 if labelled else None, columns=prod(input_shape) + labelled),
        bytes_read=0,
    )


def _features(given: Any, input_shape: ImageShape) -> NDArray[np.uint8] | NDArray[np.float32]:
    """uint8 where all are whole numbers from 0 to 255, else float32, as a CSV's rows are kept."""
    x = np.asarray(given)
    fitting = [input_shape, (prod(input_shape),), *([input_shape[1:]] if input_shape[0] == 1 else [])]
    if x.dtype.kind not in "buif":
        raise data_error(NAME, f"x holds {x.dtype}; give an array of numbers, or the path of a CSV")
    if x.ndim < 2 or x.shape[1:] not in fitting or not len(x):
        shapes = " or ".join(str(("rows", *shape)).replace("'", "") for shape in fitting)
        raise data_error(NAME, f"x is {x.shape}; the network takes {shapes}, at least one row")
    low, high = x.min(), x.max()
    if not (low >= -LARGEST and high <= LARGEST):
        raise data_error(NAME, "x holds a number that is not finite in 32 bits; leave such rows out or fill them in")
    if low >= 0 and high <= 255:
        whole = x.astype(np.uint8)
        if (whole == x).all():
            return whole
    floats: NDArray[np.float32] = x.astype(np.float32) + np.float32(0)  # -0.0 becomes 0.0, as in a CSV
    return floats


def _labels(arrays: Arrays, classes: int, needed: bool) -> NDArray[np.int64] | None:
    if arrays.y is None:
        if needed:
            raise data_error(NAME, "have no labels; give (x, y)")
        return None
    y, rows = np.asarray(arrays.y), len(np.asarray(arrays.x))
    if y.dtype.kind not in "buif" or y.shape != (rows,):
        raise data_error(NAME, f"y is {y.dtype} {y.shape}; give the class number of each of the {rows} rows")
    with np.errstate(invalid="ignore"):
        labels = y.astype(np.int64)
    if (labels != y).any() or labels.min() < 0 or labels.max() >= classes:
        raise data_error(NAME, f"y holds labels that are no whole numbers from 0 to {classes - 1}; mend them")
    return labels


def _same_on_all_ranks(comm: Communicator, x: NDArray[Any], y: NDArray[np.int64] | None) -> None:
    if comm.size == 1:
        return
    digest = hashlib.blake2b(repr((x.dtype, x.shape, y is None)).encode())
    for array in (x, y):
        if array is not None:
            digest.update(array.tobytes())
    digests = comm.allgather(digest.digest())
    other = next((rank for rank, theirs in enumerate(digests) if theirs != digests[0]), None)
    if other is not None:
        raise data_error(
            NAME, f"differ between rank 0 and rank {other}; give every rank the same rows in the same order"
        )
