"""The first rows of a file as a file of their own: a study's work, cut to size.

Cut before anything runs, so that no cell's time has it, and kept with the study, so that a cell can be run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hpcnn.data.format import BLANK, detect_format
from hpcnn.errors import DataError
from hpcnn.records.files import write_bytes


def first_rows(source: Path, rows: int, folder: Path, *, header: str = "auto", label_column: str = "auto") -> Path:
    """FOLDER/NAME_first_ROWS.csv: the header of `source`, if it has one, and its first `rows` rows, as they are.

    Raises DataError where the file can't be read or has fewer rows."""
    target = folder / f"{source.stem}_first_{rows}.csv"
    if target.exists():
        return target
    start = detect_format(source, header=header, label_column=label_column).start
    with open(source, "rb") as stream:
        content = [stream.read(start), *_rows(source, stream, rows)]
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(target, b"".join(content))
    return target


def _rows(source: Path, stream: IO[Any], rows: int) -> Iterator[bytes]:
    found = 0
    while found < rows:
        line: bytes = stream.readline()
        if not line:
            raise DataError(
                f"{source}: has {found:,} rows, the study asks for {rows:,}: give a larger file or fewer rows"
            )
        if line.strip(BLANK):
            found += 1
            yield line if line.endswith(b"\n") else line + b"\n"
