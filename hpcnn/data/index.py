"""Where the rows of a CSV start: every rank scans its part of the bytes, and all get the whole index.

The parts are cut as the rows will be, so what a rank has scanned is nearly its own interval and isn't read again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.agree import Communicator, attempt, communicator
from hpcnn.data.cells import data_error
from hpcnn.data.format import BLANK, CsvFormat
from hpcnn.data.shards import replica_shards
from hpcnn.data.window import FileWindow

LINE_FEED = ord("\n")
PEEK_BYTES = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class RowIndex:
    """Byte offsets of the data rows: row i is the first line of bytes offsets[i] to offsets[i + 1] (int64[rows + 1]).

    Blank lines may follow a row before the next offset; there is none before the first row. `window` holds the bytes
    that this rank scanned.
    """

    offsets: NDArray[np.int64]
    window: FileWindow

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1

    def read(self, rows: range) -> memoryview:
        """The bytes of consecutive rows; reads only those that the scan hasn't."""
        return self.window.read(int(self.offsets[rows.start]), int(self.offsets[rows.stop]))

    def line_of(self, row: int) -> int:
        """The physical line (from 1) of a row. Reads the file up to there: for error messages."""
        return self.window.count_lines(int(self.offsets[row])) + 1


def build_index(
    source: str | os.PathLike[str] | FileWindow,
    csv_format: CsvFormat,
    comm: Communicator | None = None,
    parts: int | None = None,
) -> RowIndex:
    """Collective: index the rows of a file that all ranks see alike.

    parts: the number of logical shards where it is known (default: ranks); ranks scan the same share of the bytes as
    they will hold of the rows. Raises `DataError` on every rank if one can't read, or if there is no row.
    """
    comm = communicator(comm)
    window = FileWindow.of(source)
    start, stop = _part(csv_format.start, window.size, parts or comm.size, comm)
    own = attempt(comm, lambda: _row_starts(window, start, stop, first=csv_format.start))
    offsets = np.concatenate([*comm.allgather(own), np.array([window.size], np.int64)])
    if len(offsets) == 1:
        what = "has a header but no rows" if csv_format.header else "has no rows"
        raise data_error(window.path, f"{what}; give a row of numbers for each sample")
    return RowIndex(offsets=offsets, window=window)


def _part(begin: int, end: int, parts: int, comm: Communicator) -> tuple[int, int]:
    shards = replica_shards(parts, comm.size, comm.rank, spare=True)
    return begin + (end - begin) * shards.start // parts, begin + (end - begin) * shards.stop // parts


def _row_starts(window: FileWindow, start: int, stop: int, first: int) -> NDArray[np.int64]:
    """Offsets in [start, stop) where a line starts that isn't blank; `first` is where the first data line starts."""
    if start == stop:
        return np.empty(0, np.int64)
    begin = max(start - 1, first)
    text = np.frombuffer(window.read(begin, stop), np.uint8)
    starts = np.flatnonzero(text == LINE_FEED).astype(np.int64) + (begin + 1)
    if start == first:
        starts = np.concatenate([np.array([first], np.int64), starts])
    starts = starts[starts < stop]
    suspects = np.isin(text[starts - begin], np.frombuffer(BLANK, np.uint8))
    keep = ~suspects
    keep[suspects] = [not _is_blank(window, begin, int(at), stop) for at in starts[suspects]]
    return starts[keep]


def _is_blank(window: FileWindow, begin: int, at: int, stop: int) -> bool:
    """Whether the line that starts at `at` is blank; looks beyond the scanned bytes only if all of it there is."""
    ahead = PEEK_BYTES
    while True:
        end = min(at + ahead, window.size)
        text = bytes(window.read(begin, max(end, stop))[at - begin : end - begin])
        line, line_feed, _ = text.partition(b"\n")
        if line.strip(BLANK):
            return False
        if line_feed or end == window.size:
            return True
        ahead *= 4
