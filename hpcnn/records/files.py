"""Whole files or none: every result is written beside its place and renamed into it.

A reader (or a job that is killed) therefore sees the old file or the new one, never half of one.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hpcnn.errors import ResultsError


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` whole. Raises ResultsError (full disk, folder gone) and leaves the old file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror}; free space or choose another --out") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, indented, keys in the order given."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows under a header. Numbers are written so that they read back to the same bits; None is an empty cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    write_text(path, buffer.getvalue())
