"""Whole files or none: every result is written beside its place and renamed into it.

A reader (or a job that is killed) therefore sees the old file or the new one, never half of one.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hpcnn.errors import ResultsError

REMEDIES = {
    errno.ENOSPC: "free space, or choose another --out",
    errno.EDQUOT: "free some of your quota, or choose another --out",
    errno.ENOENT: "its folder is gone, or never was",
    errno.EISDIR: "it is a folder, give the name of a file",
}


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write `content` to `path` whole. Raises ResultsError (full disk, folder gone) and leaves the old file.

    What is no file (a device, a pipe) is written into: a rename would put a file in its place.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and not path.is_file():
            with open(path, "wb") as stream:
                stream.write(content)
            return
        with open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "choose another place")
        raise ResultsError(f"{path}: cannot be written: {error.strerror}; {remedy}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of `text` in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, indented, keys in the order given; numbers that JSON has none for (nan, inf) as null."""
    write_text(path, json.dumps(_finite(value), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows under a header. Numbers are written so that they read back to the same bits; None is an empty cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    write_text(path, buffer.getvalue())
