"""What a CSV holds: a header or not, and which column is the label; told from the head of the file, or refused.

A wrong guess would drop a row or train on a pixel, so a file that allows two readings is refused with the flag to give.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from hpcnn.data.cells import NOT_FINITE, data_error, is_number, shown, why_not_text
from hpcnn.data.labels import LABEL_NAMES, find_label_column
from hpcnn.data.window import FileWindow
from hpcnn.errors import ConfigError

HEAD_BYTES = 1 << 20
LONGEST_HEAD_BYTES = 1 << 26
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
OTHER_SEPARATORS = (b";", b"\t", b"|", b" ")
BLANK = b" \t\r\n"


@dataclass(frozen=True, kw_only=True)
class CsvFormat:
    """Columns of a CSV. `label_column` is 0-based, None without labels; `start` is the byte where data rows begin."""

    header: bool
    label_column: int | None
    columns: int
    names: tuple[str, ...] = ()
    start: int = 0

    @property
    def features(self) -> int:
        return self.columns - (self.label_column is not None)

    def describe(self) -> str:
        """One line for people."""
        head = "a header" if self.header else "no header"
        if self.label_column is None:
            return f"{head}, {self.features} features, no label"
        place = {0: "first", self.columns - 1: "last"}.get(self.label_column, f"in column {self.label_column + 1}")
        name = f" ({shown(self.names[self.label_column])})" if self.names else ""
        return f"{head}, {self.features} features, label {place}{name}"


def detect_format(
    source: str | os.PathLike[str] | FileWindow,
    *,
    header: str = "auto",
    label_column: str | int = "auto",
    features: int | None = None,
    head_bytes: int = HEAD_BYTES,
) -> CsvFormat:
    """The format of a file, from its head alone.

    header: auto, yes or no. label_column: auto, first, last, none, a name of the header or a column from 0. features:
    their number where the network's input shape is known; otherwise a number of columns that makes a square image of 1
    or 3 channels tells whether a label is there. Raises `DataError` where this leaves two readings or none.
    """
    if header not in ("auto", "yes", "no"):
        raise ConfigError(f"header {header!r}: give auto, yes or no")
    window = FileWindow.of(source)
    start, lines = _head(window, head_bytes)
    number = window.count_lines(start) + 1
    cells = _cells(window.path, lines[0], number)
    has_header = _is_header(window.path, cells, number) if header == "auto" else header == "yes"
    if has_header and len(lines) == 1:
        raise data_error(window.path, "has a header but no rows; give a row of numbers for each sample")
    names = tuple(cell.decode().strip() for cell in cells) if has_header else ()
    label = find_label_column(
        window.path, label_column, columns=len(cells), names=names, lines=lines[has_header:], features=features
    )
    if has_header:
        start = min(start + len(lines[0]) + 1, window.size)
    return CsvFormat(header=has_header, label_column=label, columns=len(cells), names=names, start=start)


def _head(window: FileWindow, head_bytes: int) -> tuple[int, list[bytes]]:
    """The byte where the first line that isn't blank starts, and the whole lines from there that aren't, without LF."""
    size = min(head_bytes, window.size)
    while True:
        data = bytes(window.read(0, size))
        whole = len(data) if size == window.size else data.rfind(b"\n") + 1
        start = len(BYTE_ORDER_MARK) if data.startswith(BYTE_ORDER_MARK) else 0
        while (end := data.find(b"\n", start, whole)) >= 0 and not data[start:end].strip(BLANK):
            start = end + 1
        lines = [line for line in data[start:whole].split(b"\n") if line.strip(BLANK)]
        if size == window.size and not lines:
            raise data_error(window.path, "holds nothing but blank lines; give a row of numbers for each sample")
        if size == window.size or len(lines) > 1:
            return start, lines
        if size >= LONGEST_HEAD_BYTES:
            raise data_error(window.path, f"no second line in the first {size} bytes; is this a CSV?", line=1)
        size = min(4 * size, window.size)


def _cells(path: str, line: bytes, number: int) -> list[bytes]:
    """The cells of the first line; refuses what is no text, quoted, or separated by something else than commas."""
    text = line.removesuffix(b"\r")
    cells = text.split(b",")
    for column, cell in enumerate(cells, 1):
        if problem := why_not_text(cell):
            raise data_error(path, problem, line=number, column=column)
        if b'"' in cell:
            problem = f"{shown(cell.strip())} is quoted; write names and numbers without quotation marks"
            raise data_error(path, problem, line=number, column=column)
    if b"\r" in text:
        raise data_error(path, "lines end in CR alone; save it with LF or CR LF line ends", line=number)
    if len(cells) == 1:
        separator = next((mark for mark in OTHER_SEPARATORS if mark in text.strip(BLANK)), None)
        problem = f"cells are separated by {shown(separator)}" if separator else f"only one cell, {shown(text.strip())}"
        raise data_error(path, f"{problem}; write a row of numbers with commas between them", line=number)
    return cells


def _is_header(path: str, cells: Sequence[bytes], number: int) -> bool:
    """Names are a header and numbers a row, but 0, 1, 2 ...; names among numbers only if one names the label."""
    numbers = [is_number(cell) for cell in cells]
    texts = [cell.strip() for cell in cells]
    if all(numbers):
        # Columns without names get their numbers for a header (pandas writes it so); no image looks like that.
        return len(cells) > 2 and texts == [b"%d" % column for column in range(len(cells))]
    names = [text for text, is_one in zip(texts, numbers, strict=True) if not is_one and not NOT_FINITE.fullmatch(text)]
    if any(name.decode().casefold() in LABEL_NAMES for name in names) or (any(names) and not any(numbers)):
        return True
    column = numbers.index(False)
    raise data_error(
        path,
        f"{shown(texts[column])} is no number and this line no header; mend it, or give --header yes|no",
        line=number,
        column=column + 1,
    )
