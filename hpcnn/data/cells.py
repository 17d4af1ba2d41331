"""What a cell of a CSV may hold, and how a bad one is shown: one line with file, line and column (from 1)."""

from __future__ import annotations

import os
import re

from hpcnn.errors import DataError

# The decimal numbers that pandas' C parser takes, blanks around them included; words such as nan and inf are none.
NUMBER = re.compile(rb"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
SHOWN_LENGTH = 24


def is_number(cell: bytes) -> bool:
    return NUMBER.fullmatch(cell) is not None


def data_error(
    path: str | os.PathLike[str], problem: str, *, line: int | None = None, column: int | None = None
) -> DataError:
    """A `DataError` of one line: 'FILE, line L, column C: problem'."""
    where = [_printable(os.fspath(path))]
    where += [f"line {line}"] if line is not None else []
    where += [f"column {column}"] if column is not None else []
    return DataError(f"{', '.join(where)}: {problem}")


def shown(cell: bytes | str) -> str:
    """A cell in quotes for a message: shortened, and without characters that would break the line."""
    text = cell.decode("utf-8", "backslashreplace") if isinstance(cell, bytes) else cell
    text = text if len(text) <= SHOWN_LENGTH else text[:SHOWN_LENGTH] + "…"
    return f"'{_printable(text)}'"


def why_no_number(cell: bytes) -> str:
    """What is wrong with a cell that is no number, and what to do."""
    text = cell.strip(b" \t")
    if not text:
        return "the cell is empty; every cell needs a number"
    if not_text := why_not_text(cell):
        return not_text
    if b'"' in text:
        return f"{shown(text)} is quoted; write numbers without quotation marks"
    if NOT_FINITE.fullmatch(text):
        return f"{shown(text)} is not a finite number; leave such rows out or fill them in"
    if is_number(cell):
        return f"{shown(text)} is beyond the range of a 32-bit float"
    return f"{shown(text)} is not a number; write numbers with commas between them"


def why_not_text(line: bytes) -> str | None:
    """Why a line is no line of UTF-8 text, or None."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte 0x{line[error.start]:02x} is not UTF-8; is this a CSV? save it as UTF-8 text"
    control = next((byte for byte in line if byte < 0x20 and byte not in b"\t\r"), None)
    if control is not None:
        return f"byte 0x{control:02x} is no character of a text; is this a CSV? save it as UTF-8 text"
    return None


def _printable(text: str) -> str:
    """The text with everything that does not print written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
