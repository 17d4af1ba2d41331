"""Small CSVs as bytes, for the tests of the data room."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st


def csv_bytes(
    table: Sequence[Sequence[object]], *, names: Sequence[str] | None = None, end: str = "\n", last_end: bool = True
) -> bytes:
    """Rows of cells with commas between, a header if `names` are given."""
    lines = [",".join(map(str, row)) for row in ([names] if names else []) + list(table)]
    return (end.join(lines) + (end if last_end else "")).encode()


def digits(rows: int, *, label: str = "last", pixels: int = 9, seed: int = 0) -> list[list[int]]:
    """Rows of uint8 pixels with a label 0, 1, 2, ... 9, 0, ...; the first and last pixel are 0, as in real digits."""
    images = np.random.default_rng(seed).integers(0, 256, (rows, pixels))
    images[:, [0, -1]] = 0
    labels = np.arange(rows)[:, None] % 10
    parts = {"last": [images, labels], "first": [labels, images], "none": [images]}[label]
    return [[int(cell) for cell in row] for row in np.hstack(parts)]


def write(folder: Path, content: bytes, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@st.composite
def layouts(draw: st.DrawFn, rows: int, header: bool) -> tuple[bytes, list[int]]:
    """A readable file of `rows` numbered rows (i, 10 i) in any layout, and the physical line (from 1) of each row.

    LF or CR LF, blank lines anywhere, a last line with or without its end, a byte order mark or none.
    """
    blank = st.lists(st.sampled_from([b"", b" ", b"\t ", b"  "]), max_size=2)
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    lines: list[bytes] = draw(blank)
    if header:
        lines.append(b"pixel,label")
    numbers = []
    for row in range(rows):
        lines += draw(blank)
        lines.append(f"{row},{10 * row}".encode())
        numbers.append(len(lines))
    lines += draw(blank)
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    return mark + end.join(lines) + draw(st.sampled_from([b"", end])), numbers
