"""The committed study is whole: every cell of jobs/studies/reference.toml is in its tables, plots and page."""

from __future__ import annotations

import csv
import json

from tests.support.mpi import REPOSITORY

STUDY = REPOSITORY / "jobs" / "studies" / "reference.toml"
FOLDER = REPOSITORY / "results" / "studies" / "reference"
BACKENDS = {
    "torch", "tensorflow", "keras_tensorflow", "keras_torch", "keras_jax", "keras_theano", "lasagne", "caffe",
    "simulated",
}  # fmt: skip


def test_it_is_of_the_study_file_and_every_cell_was_run() -> None:
    assert (FOLDER / "study.toml").read_bytes() == STUDY.read_bytes()
    cells = json.loads((FOLDER / "cells.json").read_text(encoding="utf-8"))["cells"]
    with (FOLDER / "study.csv").open(newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert {row["key"] for row in rows} == {cell["key"] for cell in cells}
    assert {"_".join(filter(None, (row["backend"], row["keras_backend"]))) for row in rows} == BACKENDS


def test_its_page_holds_what_its_tables_say_and_every_plot_is_there_twice() -> None:
    page, tables = ((FOLDER / name).read_text(encoding="utf-8") for name in ("report.html", "tables.md"))
    assert page.count("<svg") == len(list((FOLDER / "plots").glob("*.svg"))) > 0
    assert {path.stem for path in (FOLDER / "plots").glob("*.png")} == {
        path.stem for path in (FOLDER / "plots").glob("*.svg")
    }
    for title in ("Strong scaling", "Weak scaling", "Laws fitted", "The late rank, and why"):
        assert f"## {title}" in tables
        assert title in page
