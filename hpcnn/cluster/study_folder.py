"""A study's folder: made, extended, held by one at a time, and found again after whatever ended the last run of it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcnn.errors import ConfigError, LaunchError, ResultsError
from hpcnn.records.files import write_text
from hpcnn.studies.cells import ASKED, CELLS, RUNS, Cell, read_cells, run_state, state_of, write_cells
from hpcnn.studies.rows import first_rows
from hpcnn.studies.study_file import Study

LOCK = ".lock"
SECONDS_BETWEEN_LOOKS = 0.5
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
"""Of a file system that knows none: then there is none."""


def make_folder(study: Study, cells: Sequence[Cell]) -> None:
    """Write what was asked and the list of cells; a file that was extended since extends the list.

    Raises ConfigError where finished cells are no more in it: their runs are of other settings than the file has now.
    """
    folder = study.out
    if (folder / CELLS).exists():
        keys = {cell.key for cell in cells}
        lost = [cell.key for cell in read_cells(folder) if cell.state == "done" and cell.key not in keys]
        if lost:
            raise ConfigError(
                f"{study.path}: {len(lost)} finished cell{'s' if len(lost) > 1 else ''} of {folder} ({lost[0]}"
                f"{', ...' if len(lost) > 1 else ''}) are not in this file: it may be extended, not changed; give it "
                "another out, or move the folder away"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"{folder}: cannot be made: {error.strerror}; give the study another out") from None
    if not _holds(folder / ASKED, study.text) or not _lists(folder, cells):
        write_text(folder / ASKED, study.text)
        write_cells(folder, cells, study=study.name, warmup_steps=study.warmup_steps)


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def _lists(folder: Path, cells: Sequence[Cell]) -> bool:
    """Tasks of a job array find the list as it is, and write none."""
    with contextlib.suppress(ResultsError, OSError, ValueError, KeyError, TypeError):
        listed = json.loads((folder / CELLS).read_text(encoding="utf-8"))["cells"]
        return [entry["key"] for entry in listed] == [cell.key for cell in cells]
    return False


@contextlib.contextmanager
def held(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock that ends with this process, however that ends. Raises LaunchError where another holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise LaunchError(
                    f"{path.parent}: another process runs cells of it: wait for its end (`hpcnn study status`)"
                ) from None
        yield
    finally:
        os.close(descriptor)


def outlived(folder: Path, cell: Cell) -> Cell:
    """The cell as it stands once no run of it lives: a study that was killed may have left one that is ending, or that
    ends well."""
    place = folder / RUNS / cell.key
    for record in sorted(place.glob("*/run.json")):
        while run_state(record.parent).state == "running":
            time.sleep(SECONDS_BETWEEN_LOOKS)
    return state_of(folder, cell)


def training_rows(study: Study, cell: Cell) -> str | None:
    """The file of the rows that a cell trains on, cut to size where it says how many. Raises DataError."""
    train, rows = cell.settings.get("train"), cell.settings.get("rows")
    if train is None or rows is None:
        return train
    header, label = (str(cell.settings.get(name, "auto")) for name in ("header", "label_column"))
    return str(first_rows(Path(train), int(rows), study.out / "data", header=header, label_column=label))
