"""Which column of a CSV is the label: as asked, by its name, or by what the columns can be; refused if unclear."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hpcnn.data.cells import data_error, is_number, shown
from hpcnn.data.shape import image_shape

Path = str | os.PathLike[str]
LABEL_NAMES = frozenset({"label", "class", "target", "y"})
REMEDY = "give --label-column first|last|none"
REMEDY_BY_NAME = "give --label-column first|last|none, a name of the header or a column from 0"


def find_label_column(
    path: Path,
    wanted: str | int,
    *,
    columns: int,
    names: Sequence[str],
    lines: Sequence[bytes],
    features: int | None = None,
) -> int | None:
    """The label's column from 0, or None for a file without labels.

    wanted: auto, first, last, none, a name of the header, or a column from 0. names: of the header, empty without one.
    lines: some rows, without LF. features: their number where the input shape is known; as many columns leave none for
    a label, wherever it is in other files. Raises `DataError` where it can't be told.
    """
    if wanted == "auto":
        return _detected(path, columns, names, lines, features)
    if wanted == "none" or columns == features:
        return None
    if wanted in ("first", "last"):
        return 0 if wanted == "first" else columns - 1
    if wanted in names:
        return _only(path, [i for i, name in enumerate(names) if name == wanted], names)
    try:
        column = int(wanted)
    except ValueError:
        header = "in the header" if names else "because there is no header"
        raise data_error(path, f"no column named {shown(str(wanted))} {header}; {REMEDY_BY_NAME}") from None
    if not 0 <= column < columns:
        raise data_error(path, f"no label column {column}: they are 0 to {columns - 1}; {REMEDY_BY_NAME}")
    return column


def _detected(
    path: Path, columns: int, names: Sequence[str], lines: Sequence[bytes], features: int | None
) -> int | None:
    if named := [i for i, name in enumerate(names) if name.casefold() in LABEL_NAMES]:
        return _only(path, named, names)
    if not _has_label(path, columns, features):
        return None
    rows = [line.removesuffix(b"\r") for line in lines if line.count(b",") == columns - 1]
    first = _why_no_label([line.partition(b",")[0] for line in rows])
    last = _why_no_label([line.rpartition(b",")[2] for line in rows])
    if first is None and last is None:
        raise data_error(path, f"the first column could be the label, and so could the last; {REMEDY}")
    if first is not None and last is not None:
        raise data_error(path, f"no label found (first column: {first}; last column: {last}); {REMEDY}")
    return 0 if first is None else columns - 1


def _has_label(path: Path, columns: int, features: int | None) -> bool:
    """Whether the columns are an image and a label rather than an image alone."""
    if features is not None:
        bare, labelled = columns == features, columns == features + 1
    else:
        bare, labelled = image_shape(columns) is not None, image_shape(columns - 1) is not None
    if bare and labelled:
        raise data_error(path, f"{columns} columns make an image with a label and one without; {REMEDY}")
    if not bare and not labelled:
        if features is not None:
            problem = f"{columns} columns, but the network takes {features} features, with or without a label"
            raise data_error(path, f"{problem}; give rows of the images that it was made for")
        problem = f"{columns} columns are not a square image of 1 or 3 channels, with or without a label"
        raise data_error(path, f"{problem}; {REMEDY}, and --input-shape if needed")
    return labelled


def _why_no_label(cells: Sequence[bytes]) -> str | None:
    """Why these cells can't be labels, or None if they can. Cells that are no numbers are left to the parser."""
    distinct = {cell.strip() for cell in cells if is_number(cell)}
    for cell in sorted(distinct):
        value = float(cell)
        if value < 0 or not value.is_integer():
            return f"{shown(cell)} is no label"
    values = {float(cell) for cell in distinct}
    if len(values) < 2:
        return f"always {shown(next(iter(distinct)))}" if values else "no numbers"
    return None


def _only(path: Path, found: Sequence[int], names: Sequence[str]) -> int:
    if len(found) > 1:
        which = ", ".join(f"{shown(names[i])} ({i})" for i in found[:3])
        raise data_error(path, f"several columns may be the label: {which}; give --label-column with a column's number")
    return found[0]
