from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcnn.data.agree import Communicator
from hpcnn.data.format import CsvFormat, detect_format
from hpcnn.data.index import RowIndex, build_index
from hpcnn.data.window import FileWindow
from hpcnn.errors import DataError
from tests.data.csv_files import csv_bytes, digits, layouts, write
from tests.support.pool import on_ranks, results


def index_on(ranks: int, path: Path, csv_format: CsvFormat, parts: int | None = None) -> list[RowIndex]:
    return results(on_ranks(ranks, index, path, csv_format, parts))


def index(comm: Communicator, path: Path, csv_format: CsvFormat, parts: int | None = None) -> RowIndex:
    return build_index(path, csv_format, comm, parts)


def index_while_the_file_shrinks(comm: Communicator, path: Path, csv_format: CsvFormat, size: int) -> RowIndex:
    window = FileWindow(path)
    comm.allgather("opened")
    if comm.rank == 0:
        os.truncate(path, size)
    comm.allgather("truncated")
    return build_index(window, csv_format, comm)


@settings(max_examples=150)
@given(data=st.data(), rows=st.integers(1, 12), header=st.booleans(), ranks=st.integers(1, 5))
def test_any_layout_gives_every_rank_the_same_rows_and_the_physical_lines(
    data: st.DataObject, rows: int, header: bool, ranks: int
) -> None:
    content, lines = data.draw(layouts(rows, header))
    parts = data.draw(st.one_of(st.none(), st.integers(1, 9)))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), content)
        csv_format = detect_format(path, label_column="last")
        assert csv_format.header == header
        for index in index_on(ranks, path, csv_format, parts):
            assert index.offsets.dtype == np.int64
            assert index.rows == rows
            texts = [bytes(index.read(range(row, row + 1))).split(b"\n")[0].strip() for row in range(rows)]
            assert texts == [f"{row},{10 * row}".encode() for row in range(rows)]
            assert [index.line_of(row) for row in range(rows)] == lines


def test_consecutive_rows_are_read_as_one_piece_and_an_empty_range_as_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, b"1,2\n3,4\n5,6\n")
    (index,) = index_on(1, path, detect_format(path, label_column="last"))
    assert bytes(index.read(range(1, 3))) == b"3,4\n5,6\n"
    assert bytes(index.read(range(3, 3))) == b""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_scan_disjoint_parts_that_are_cut_as_the_logical_shards_are(tmp_path: Path, ranks: int) -> None:
    path = write(tmp_path, csv_bytes(digits(500)))
    size = path.stat().st_size
    csv_format = CsvFormat(header=False, label_column=9, columns=10)
    read = [index.window.bytes_read for index in index_on(ranks, path, csv_format, parts=4)]
    shards = [4 * (rank + 1) // ranks - 4 * rank // ranks for rank in range(ranks)]
    for own, share in zip(read, shards, strict=True):
        # A part begins one byte early, to see whether a line starts there; its bounds are rounded down.
        assert abs(own - size * share / 4) <= 2


def test_a_run_of_blank_lines_across_the_border_of_two_ranks_holds_no_row(tmp_path: Path) -> None:
    path = write(tmp_path, b"1,2\n" + b" \n" * 400 + b" " * 900 + b"\n3,4\n")
    for ranks in (1, 2, 3, 4):
        for index in index_on(ranks, path, CsvFormat(header=False, label_column=1, columns=2)):
            assert index.rows == 2


def test_a_line_that_only_starts_with_blanks_is_a_row_wherever_it_is_cut(tmp_path: Path) -> None:
    path = write(tmp_path, b"1,2\n" + b" " * 300 + b"3,4")
    for ranks in range(1, 9):
        for index in index_on(ranks, path, CsvFormat(header=False, label_column=1, columns=2)):
            assert index.rows == 2


def test_more_ranks_than_bytes_still_agree(tmp_path: Path) -> None:
    path = write(tmp_path, b"1,2")
    assert [index.rows for index in index_on(6, path, CsvFormat(header=False, label_column=1, columns=2))] == [1] * 6


def test_a_file_without_rows_is_refused_on_every_rank(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,b\n\n")
    csv_format = CsvFormat(header=True, label_column=1, columns=2, start=4)
    outcomes = on_ranks(3, index, path, csv_format)
    assert all(isinstance(outcome, DataError) for outcome in outcomes)
    assert {str(outcome) for outcome in outcomes} == {
        f"{path}: has a header but no rows; give a row of numbers for each sample"
    }


def test_a_file_that_shrinks_under_one_rank_is_an_error_on_all(tmp_path: Path) -> None:
    path = write(tmp_path, csv_bytes(digits(50)))
    size = path.stat().st_size - 100
    csv_format = CsvFormat(header=False, label_column=9, columns=10)
    outcomes = on_ranks(3, index_while_the_file_shrinks, path, csv_format, size)
    assert path.stat().st_size == size
    assert len({str(outcome) for outcome in outcomes}) == 1
    assert all(isinstance(outcome, DataError) and "changed while being read" in str(outcome) for outcome in outcomes)
