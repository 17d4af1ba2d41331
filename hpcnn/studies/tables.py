"""A run's CSV as columns of text and numbers, and one clear line where the file is damaged."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hpcnn.errors import ResultsError

Column = NDArray[np.float64]
Row = TypeVar("Row")


def read_table(path: Path, columns: Sequence[str]) -> Mapping[str, list[str]]:
    """The wanted columns of the CSV at `path` as texts, by name.

    Raises ResultsError (the file, the place, what to do) where it is missing, cut off or not such a table. Result files
    are written whole, so what is cut off was cut off in copying.
    """
    import pandas as pd

    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ResultsError(
            f"{path}: no such file; a completed run leaves it: copy the whole folder or run again"
        ) from None
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror}") from None
    if not data.endswith(b"\n"):
        line = data.count(b"\n") + 1
        raise ResultsError(f"{path}: cut off in line {line}; copy the folder again or run again")
    try:
        frame = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False, skip_blank_lines=False)
    except ValueError as error:
        raise ResultsError(f"{path}: is not a table: {' '.join(str(error).split())}") from None
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise ResultsError(
            f"{path}: has no column {missing[0]!r}; its columns are {', '.join(map(str, frame.columns))}"
        )
    if not isinstance(frame.index, pd.RangeIndex):
        raise ResultsError(f"{path}: line 2 has more cells than line 1 has names")
    # Cells that a short line lacks come as a float (nan), whatever the type asked for.
    return {name: [cell if isinstance(cell, str) else "" for cell in frame[name].tolist()] for name in columns}


def numbers(path: Path, table: Mapping[str, list[str]], name: str, *, optional: bool = False) -> Column:
    """Column `name` as float64, to the bit as written. `optional`: an empty cell is nan, else it is damage."""
    values = np.empty(len(table[name]), dtype=np.float64)
    for place, cell in enumerate(table[name]):
        if optional and not cell:
            values[place] = math.nan
            continue
        try:
            values[place] = float(cell)
        except ValueError:
            raise ResultsError(f"{path}: line {place + 2}, column {name}: {cell!r} is not a number") from None
    return values


def whole_numbers(path: Path, table: Mapping[str, list[str]], name: str) -> Column:
    """Column `name` as float64 that hold whole numbers >= 0 (exact below 2^53)."""
    values = numbers(path, table, name)
    with np.errstate(invalid="ignore"):
        bad = ~(np.isfinite(values) & (values >= 0) & (values == np.floor(values)))
    if bad.any():
        place = int(bad.argmax())
        raise ResultsError(f"{path}: line {place + 2}, column {name}: {table[name][place]!r} is not a count")
    return values


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """The lines of a table whose columns are the fields of a dataclass, as such; none where there is no file."""
    if not path.exists():
        return []
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    table = read_table(path, [item.name for item in fields])
    columns = {
        item.name: [_value(path, item, *cell) for cell in enumerate(table[item.name], start=2)] for item in fields
    }
    return [kind(**dict(zip(columns, cells, strict=True))) for cells in zip(*columns.values(), strict=True)]


def _value(path: Path, item: dataclasses.Field[Any], line: int, cell: str) -> Any:
    kind, _, rest = str(item.type).partition(" ")
    if not cell and rest:
        return None
    try:
        return {"str": str, "int": int, "float": float}[kind](cell)
    except ValueError:
        raise ResultsError(f"{path}: line {line}, column {item.name}: {cell!r} is no {kind}") from None
