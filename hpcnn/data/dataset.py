"""This rank's rows of a CSV, and float32 batches of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.agree import Communicator, attempt, communicator
from hpcnn.data.cells import data_error
from hpcnn.data.format import CsvFormat, detect_format
from hpcnn.data.index import build_index
from hpcnn.data.normalise import Normalisation
from hpcnn.data.parse import parse_rows
from hpcnn.data.shape import ImageShape, input_shape_of
from hpcnn.data.shards import check_shards, default_logical_shards, logical_shard_bounds, replica_shards
from hpcnn.data.window import FileWindow

ALIGNMENT = 64
Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """The rows of a rank's logical shards: file rows first_row to first_row + len(features).

    features: (n, channels, height, width) uint8 or float32. labels: int64[n] or None. rows: of the whole file.
    shards: this rank's of `logical_shards`. bytes_read: by this rank.
    """

    path: str
    features: NDArray[np.uint8] | NDArray[np.float32]
    labels: NDArray[np.int64] | None
    classes: int | None
    first_row: int
    rows: int
    logical_shards: int
    shards: range
    format: CsvFormat
    bytes_read: int

    @property
    def input_shape(self) -> ImageShape:
        channels, height, width = self.features.shape[1:]
        return channels, height, width

    def batch(self, rows: NDArray[np.int64], normalisation: Normalisation, out: Floats | None = None) -> Floats:
        """float32 (n, channels, height, width) of these file rows, normalised, in a 64-byte aligned buffer.

        `out`: a buffer of at least n rows (`aligned_empty`) whose first n are filled and returned; else a new one.
        """
        if out is None:
            out = aligned_empty((len(rows), *self.input_shape))
        out = out[: len(rows)]
        np.subtract(self.features[self._local(rows)], normalisation.shift[:, None, None], out=out)
        np.multiply(out, normalisation.scale[:, None, None], out=out)
        return out

    def take_labels(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[n]: the labels of these file rows."""
        if self.labels is None:
            raise data_error(self.path, "has no labels; give --label-column if a column holds them")
        return self.labels[self._local(rows)]

    def _local(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        local = np.asarray(rows, np.int64) - self.first_row
        if len(local) and (local.min() < 0 or local.max() >= len(self.features)):
            raise IndexError(f"rows {rows.min()} to {rows.max()}, of which this rank holds {self.first_row} on")
        return local


def load_dataset(
    path: str | os.PathLike[str],
    *,
    comm: Communicator | None = None,
    logical_shards: int | None = None,
    global_batch: int | None = None,
    classes: int | None = None,
    input_shape: ImageShape | None = None,
    header: str = "auto",
    label_column: str | int = "auto",
    need_labels: bool = False,
    spare_ranks: bool = False,
) -> Dataset:
    """Collective: each rank reads and keeps the rows of its own logical shards.

    comm: one rank a replica (None: one process). logical_shards: default min(64, global_batch, rows). classes: labels
    must be below it; default: largest label of all ranks + 1. input_shape: default a square image of the columns.
    spare_ranks: ranks beyond the logical shards hold no rows (evaluation) instead of a `LaunchError`.

    Raises `DataError`, the same on all ranks, for a file that is missing, empty, unreadable, unclear or wrong anywhere.
    Work that may fail on one rank stands between collectives, inside `attempt`.
    """
    comm = communicator(comm)
    window = attempt(comm, lambda: FileWindow(path))
    _same_size(window, comm)
    features = prod(input_shape) if input_shape else None

    def detect() -> CsvFormat | None:
        if comm.rank:
            return None
        return detect_format(window, header=header, label_column=label_column, features=features)

    csv_format: CsvFormat = comm.bcast(attempt(comm, detect))
    if need_labels and csv_format.label_column is None:
        raise data_error(path, f"has no labels ({csv_format.describe()}); give --label-column if a column holds them")
    shape = input_shape_of(path, csv_format.features, input_shape)
    wanted = None if logical_shards is None else check_shards(logical_shards)
    index = build_index(window, csv_format, comm, parts=wanted or default_logical_shards(window.size, global_batch))
    shard_count = wanted or default_logical_shards(index.rows, global_batch)
    shards = replica_shards(shard_count, comm.size, comm.rank, spare=spare_ranks)
    bounds = logical_shard_bounds(index.rows, shard_count)
    rows = range(int(bounds[shards.start]), int(bounds[shards.stop]))
    parsed = attempt(comm, lambda: parse_rows(index, csv_format, rows, classes))
    window.release()
    largest = -1 if parsed.labels is None else int(parsed.labels.max(initial=-1))
    found = max(comm.allgather(largest)) + 1
    return Dataset(
        path=window.path,
        features=parsed.features.reshape(len(rows), *shape),
        labels=parsed.labels,
        classes=classes or found or None,
        first_row=rows.start,
        rows=index.rows,
        logical_shards=shard_count,
        shards=shards,
        format=csv_format,
        bytes_read=window.bytes_read,
    )


def aligned_empty(shape: tuple[int, ...]) -> Floats:
    """An uninitialised float32 array that starts on a 64-byte boundary: a result of MKL may depend on the alignment."""
    size = prod(shape) * 4
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(np.float32).reshape(shape)


def _same_size(window: FileWindow, comm: Communicator) -> None:
    sizes = comm.allgather(window.size)
    other = next((rank for rank, size in enumerate(sizes) if size != sizes[0]), None)
    if other is not None:
        problem = f"{sizes[0]} bytes on rank 0 and {sizes[other]} on rank {other}; give all ranks the same file"
        raise data_error(window.path, problem)
