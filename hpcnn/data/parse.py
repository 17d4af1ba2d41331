"""Rows of text to arrays: pandas' C parser where all is well, and a search for the first bad cell where it is not.

What may pass is decided here and not by pandas, which would read a short row, a quoted cell or a word such as nan
without complaint.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.cells import data_error, is_number, shown, why_no_number
from hpcnn.data.format import CsvFormat
from hpcnn.data.index import RowIndex
from hpcnn.errors import DataError

CELLS_AT_ONCE = 1 << 21  # 16 MiB as float64
NUMBER_BYTES = b"0123456789+-.eE, \t\r\n"
LARGEST = float(np.finfo(np.float32).max)
MOST_CLASSES = 10_000  # unless more are asked for: a larger label tells that another column was taken for it


@dataclass(frozen=True, kw_only=True, eq=False)
class ParsedRows:
    """features: (n, features), uint8 if all are whole numbers from 0 to 255, else float32. labels: int64[n] or None."""

    features: NDArray[np.uint8] | NDArray[np.float32]
    labels: NDArray[np.int64] | None


def parse_rows(index: RowIndex, csv_format: CsvFormat, rows: range, classes: int | None = None) -> ParsedRows:
    """Parse consecutive rows of an indexed file.

    Raises `DataError` with file, line and column at the first cell that is no finite number, row of another length, or
    label that is no whole number from 0 to `classes` - 1 (9,999 where `classes` isn't given).
    """
    features: NDArray[Any] = np.empty((len(rows), csv_format.features), np.uint8)
    label = csv_format.label_column
    labels = np.empty(len(rows), np.int64)
    text = index.read(rows)
    step = max(1, CELLS_AT_ONCE // csv_format.columns)
    for first in range(0, len(rows), step):
        chunk = rows[first : first + step]
        low, high = index.offsets[[chunk.start, chunk.stop]] - index.offsets[rows.start]
        values = _values(bytes(text[low:high]), len(chunk), csv_format, classes or MOST_CLASSES)
        if values is None:
            raise _first_problem(index, csv_format, chunk, classes)
        here = slice(first, first + len(chunk))
        if label is not None:
            labels[here] = values[:, label]
            values = np.delete(values, label, axis=1)
        if features.dtype == np.uint8 and not _fits_uint8(values):
            features = features.astype(np.float32)
        features[here] = values
    return ParsedRows(features=features, labels=None if label is None else labels)


def _values(text: bytes, rows: int, csv_format: CsvFormat, classes: int) -> NDArray[np.float64] | None:
    """float64 (rows, columns), or None if anything is wrong with any row."""
    # pandas refuses a row longer than the first. Where none is longer and the total is right, none is shorter.
    if text.count(b",") != rows * (csv_format.columns - 1) or text.translate(None, NUMBER_BYTES):
        return None
    import pandas

    try:
        table = pandas.read_csv(
            BytesIO(text),
            header=None,
            dtype=np.float64,
            quoting=csv.QUOTE_NONE,
            na_filter=False,
            low_memory=False,  # which would parse in pieces again
            engine="c",
        )
    except (ValueError, OverflowError):  # pandas' ParserError and EmptyDataError are ValueErrors
        return None
    values: NDArray[np.float64] = table.to_numpy()
    if values.shape != (rows, csv_format.columns) or not np.abs(values).max() <= LARGEST:
        return None
    if csv_format.label_column is not None:
        labels = values[:, csv_format.label_column]
        if labels.min() < 0 or labels.max() >= classes or (labels != np.floor(labels)).any():
            return None
    return values + 0.0  # -0.0 becomes 0.0, so that values don't depend on which rows a rank keeps as uint8


def _fits_uint8(values: NDArray[np.float64]) -> bool:
    if values.min() < 0 or values.max() > 255:
        return False
    return bool((values.astype(np.uint8) == values).all())


def _first_problem(index: RowIndex, csv_format: CsvFormat, rows: range, classes: int | None) -> DataError:
    """The error of the first bad row among `rows`."""
    for row in rows:
        line = bytes(index.read(range(row, row + 1))).partition(b"\n")[0].rstrip(b"\r")
        if problem := _problem(line.split(b","), csv_format, classes):
            text, column = problem
            return data_error(index.window.path, text, line=index.line_of(row), column=column)
    raise AssertionError(f"pandas refuses rows {rows.start} to {rows.stop} of {index.window.path}; no cell is bad")


def _problem(cells: Sequence[bytes], csv_format: CsvFormat, classes: int | None) -> tuple[str, int] | None:
    """What is wrong with a row, and in which column (from 1), or None."""
    if len(cells) != csv_format.columns:
        text = f"{len(cells)} cell{'s' if len(cells) > 1 else ''} where the first line has {csv_format.columns}"
        return f"{text}; give every row the same number", min(len(cells), csv_format.columns) + 1
    for column, cell in enumerate(cells):
        if not is_number(cell) or not abs(float(cell)) <= LARGEST:
            return why_no_number(cell), column + 1
    if csv_format.label_column is not None:
        cell = cells[csv_format.label_column]
        if trouble := _label_problem(float(cell), classes):
            return f"label {shown(cell.strip())} {trouble}", csv_format.label_column + 1
    return None


def _label_problem(label: float, classes: int | None) -> str | None:
    if not label.is_integer():
        return "is no whole number; is another column the label? give --label-column"
    if label < 0:
        return "is negative; labels count from 0"
    if label >= (classes or MOST_CLASSES):
        known = f"the {classes} classes" if classes else f"the {MOST_CLASSES} classes that labels alone may make"
        return f"is out of range for {known} (0 to {(classes or MOST_CLASSES) - 1}); give --label-column or --classes"
    return None
