"""The list of a study's cells, and states that hold whoever was killed before writing them."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hpcnn.errors import DataError, ResultsError
from hpcnn.records.files import write_json
from hpcnn.studies.cells import Cell, read_cells, record_state, study_facts, write_cells
from hpcnn.studies.rows import first_rows

CELLS = [
    Cell(key=f"torch_np{ranks}_r{repeat}", repeat=repeat, ranks=ranks, scaling="strong", settings={"global_batch": 50})
    for repeat in (0, 1)
    for ranks in (1, 2)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_cells(tmp_path, CELLS, study="mine", warmup_steps=3)
    return tmp_path


def run_of(folder: Path, cell: Cell, state: str, name: str = "run_001", age: float = 0.0) -> str:
    place = folder / "runs" / cell.key / name
    (place / "ranks").mkdir(parents=True)
    write_json(place / "run.json", {"state": state})
    beat = {"rank": 0, "epoch": 1, "step": 2, "time": time.time() - age, "interval": 2.0, "state": state}
    write_json(place / "ranks" / "r0.json", beat)
    return f"runs/{cell.key}/{name}"


def test_cells_are_read_as_they_were_written(folder: Path) -> None:
    assert read_cells(folder) == CELLS
    assert study_facts(folder) == ("mine", 3)
    assert [cell.group for cell in CELLS] == ["torch_np1", "torch_np2"] * 2


def test_what_is_recorded_of_a_cell_is_its_state(folder: Path) -> None:
    states = [
        replace(CELLS[0], state="done", run=run_of(folder, CELLS[0], "completed")),
        replace(CELLS[1], state="refused", reason="too many ranks"),
        replace(CELLS[2], state="failed", reason="no number", run=run_of(folder, CELLS[2], "failed")),
        replace(CELLS[3], state="running"),
    ]
    for cell in states:
        record_state(folder, cell)
    assert read_cells(folder) == states
    assert json.loads((folder / "cells.json").read_text())["cells"][0]["state"] == "waiting"


def test_a_run_that_completed_counts_where_nobody_recorded_it(folder: Path) -> None:
    record_state(folder, replace(CELLS[0], state="running"))
    run_of(folder, CELLS[0], "running", "run_001", age=3600)
    finished = run_of(folder, CELLS[0], "completed", "run_002")
    assert read_cells(folder)[0] == replace(CELLS[0], state="done", run=finished)


def test_a_run_that_died_waits_and_one_that_lives_runs(folder: Path) -> None:
    for cell, age in ((CELLS[0], 3600.0), (CELLS[1], 0.0)):
        record_state(folder, replace(cell, state="running"))
        run_of(folder, cell, "running", age=age)
    died, lives, *_ = read_cells(folder)
    assert (died.state, lives.state) == ("waiting", "running")
    assert died.reason.startswith("its last run died (last seen: rank 0")


def test_a_damaged_run_is_no_finished_cell(folder: Path) -> None:
    record_state(folder, replace(CELLS[0], state="running"))
    place = folder / "runs" / CELLS[0].key / "run_001"
    place.mkdir()
    (place / "run.json").write_text("{")
    assert read_cells(folder)[0].state == "waiting"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        ("{", "cannot be read"),
        ('{"study": "x", "warmup_steps": 0}', "it has no cells"),
        ('{"cells": [{"key": "x"}]}', "cell 0 has not the form of one"),
        ('{"cells": [{"key": "x", "repeat": 0, "ranks": 1, "settings": {}, "state": "odd"}]}', "cell x is 'odd'"),
    ],
)
def test_a_list_that_is_missing_or_damaged_is_one_line(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "cells.json").write_text(content)
    with pytest.raises(ResultsError) as caught:
        read_cells(tmp_path)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "cells.json"))


@pytest.mark.parametrize("header", ["a,b,c,label\n", ""])
def test_the_first_rows_are_cut_with_their_header_and_without_blank_lines(tmp_path: Path, header: str) -> None:
    source = tmp_path / "rows.csv"
    lines = [f"{row},2,3,{row % 2}\n" for row in range(9)]
    source.write_text(header + lines[0] + "\n" + "".join(lines[1:]).rstrip("\n"))
    cut = first_rows(source, 4, tmp_path / "data", label_column="last")
    assert cut.name == "rows_first_4.csv"
    assert cut.read_text() == header + "".join(lines[:4])
    assert first_rows(source, 9, tmp_path / "data", label_column="last").read_text() == header + "".join(lines)
    with pytest.raises(DataError, match="has 9 rows, the study asks for 10: give a larger file or fewer rows"):
        first_rows(source, 10, tmp_path / "data", label_column="last")
