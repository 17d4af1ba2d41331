"""Every kind of bad file gives one line with the file, and line and column where there are any, on every rank."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hpcnn.data.dataset import load_dataset
from hpcnn.errors import DataError, LaunchError
from tests.data.csv_files import csv_bytes, digits, write
from tests.data.load_on_ranks import load, load_own
from tests.support.pool import on_ranks

NAMES = [*(f"pixel{i}" for i in range(9)), "label"]
GOOD = digits(30)


def with_cell(row: int, column: int, cell: str) -> bytes:
    """A good file with one cell changed; rows and columns from 1 as in messages, the header being line 1."""
    table: list[list[object]] = [list(line) for line in GOOD]
    table[row - 2][column - 1] = cell
    return csv_bytes(table, names=NAMES)


def with_row(row: int, cells: list[object]) -> bytes:
    table: list[list[object]] = [list(line) for line in GOOD]
    table[row - 2] = cells
    return csv_bytes(table, names=NAMES)


GOOD_BYTES = csv_bytes(GOOD, names=NAMES)
CONTENTS: dict[str, tuple[bytes, str]] = {
    "empty file": (b"", ": is empty"),
    "blank lines only": (b"\n \n\r\n", ": holds nothing but blank lines"),
    "header only": (csv_bytes([], names=NAMES), ": has a header but no rows"),
    "header and blank lines": (csv_bytes([], names=NAMES) + b"\n\n", ": has a header but no rows"),
    "non-numeric cell": (with_cell(12, 4, "abc"), ", line 12, column 4: 'abc' is not a number"),
    "non-numeric cell in the last row": (with_cell(31, 1, "1O"), ", line 31, column 1: '1O' is not a number"),
    "a line break in a message": (with_cell(12, 4, "a\rb\x0b"), ", line 12, column 4: byte 0x0b is no character"),
    "empty cell": (with_cell(20, 9, ""), ", line 20, column 9: the cell is empty"),
    "blank cell": (with_cell(20, 9, "  "), ", line 20, column 9: the cell is empty"),
    "nan": (with_cell(3, 2, "nan"), ", line 3, column 2: 'nan' is not a finite number"),
    "infinity": (with_cell(3, 2, "-Infinity"), ", line 3, column 2: '-Infinity' is not a finite number"),
    "too large for float32": (with_cell(3, 2, "1e39"), ", line 3, column 2: '1e39' is beyond the range"),
    "row too short": (with_row(17, [1] * 9), ", line 17, column 10: 9 cells where the first line has 10"),
    "row too long": (with_row(17, [1] * 11), ", line 17, column 11: 11 cells where the first line has 10"),
    "comma at the end of a row": (with_row(17, [*[1] * 10, ""]), ", line 17, column 11: 11 cells"),
    "label out of range": (with_cell(25, 10, "10"), ", line 25, column 10: label '10' is out of range for the 10 cl"),
    "negative label": (with_cell(25, 10, "-1"), ", line 25, column 10: label '-1' is negative"),
    "fractional label": (with_cell(25, 10, "1.5"), ", line 25, column 10: label '1.5' is no whole number"),
    "empty label": (with_cell(25, 10, ""), ", line 25, column 10: the cell is empty"),
    "NUL byte": (with_cell(9, 5, "1\0"), ", line 9, column 5: byte 0x00 is no character"),
    "not UTF-8": (GOOD_BYTES.replace(b"\n0,", b"\n\xff0,", 1), ", line 2, column 1: byte 0xff is not UTF-8"),
    "header not UTF-8": (b"\xe9" + GOOD_BYTES, ", line 1, column 1: byte 0xe9 is not UTF-8"),
    "UTF-16": (GOOD_BYTES.decode().encode("utf-16"), ", line 1, column 1: byte 0xff is not UTF-8"),
    "compressed": (gzip.compress(GOOD_BYTES, mtime=0), ", line 1, column 1: byte "),
    "binary garbage": (bytes(range(256)) * 50, ", line 1, column 1: byte 0x00 is no character"),
    "garbage after good rows": (GOOD_BYTES + bytes(range(14, 256)), ", line 32, column "),
    "quoted": (b"\n".join(b'"%d","%d"' % (i, i) for i in range(9)), ", line 1, column 1: '\"0\"' is quoted"),
    "quoted header": (b'"a","label"\n1,2\n', ", line 1, column 1: '\"a\"' is quoted"),
    "quoted cell": (with_cell(8, 8, '"7"'), ", line 8, column 8: '\"7\"' is quoted"),
    "semicolons": (GOOD_BYTES.replace(b",", b";"), ", line 1: cells are separated by ';'"),
    "semicolons without a header": (csv_bytes(GOOD).replace(b",", b";"), ", line 1: cells are separated by ';'"),
    "tabs": (GOOD_BYTES.replace(b",", b"\t"), r", line 1: cells are separated by '\t'"),
    "one column": (b"1\n2\n", ", line 1: only one cell, '1'"),
    "a row of semicolons": (with_row(7, ["1;2;3"]), ", line 7, column 2: 1 cell where the first line has 10"),
    "old Macintosh": (GOOD_BYTES.replace(b"\n", b"\r"), ", line 1: lines end in CR alone"),
    "a word in the first row": (csv_bytes([["x", *row[1:]] for row in GOOD]), ", line 1, column 1: 'x' is no number"),
}


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("kind", list(CONTENTS))
def test_a_bad_file_is_one_line_with_its_place_on_every_rank(tmp_path: Path, kind: str, ranks: int) -> None:
    content, words = CONTENTS[kind]
    path = write(tmp_path, content)
    outcomes = on_ranks(ranks, load, path, global_batch=7, classes=10)
    (message,) = {str(outcome) for outcome in outcomes}
    assert {type(outcome) for outcome in outcomes} == {DataError}
    assert message.startswith(f"{path}{words}")
    assert len(message.splitlines()) == 1
    assert message.isprintable()


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_missing_file_and_a_directory_are_one_line_on_every_rank(tmp_path: Path, ranks: int) -> None:
    for path, words in [(tmp_path / "missing.csv", "no such file"), (tmp_path, "is a directory")]:
        outcomes = on_ranks(ranks, load, path)
        (message,) = {repr(outcome) for outcome in outcomes}
        assert message.startswith(f"DataError('{path}: {words}")


def test_a_file_that_one_rank_alone_can_not_see_is_an_error_on_all(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD_BYTES)
    outcomes = on_ranks(3, load_own, [path, path, tmp_path / "elsewhere"])
    assert {repr(outcome) for outcome in outcomes} == {
        repr(DataError(f"{tmp_path}/elsewhere: no such file; check the path (on every node)"))
    }


def test_another_file_under_the_same_name_on_one_rank_is_an_error_on_all(tmp_path: Path) -> None:
    paths = [write(tmp_path, GOOD_BYTES, "a"), write(tmp_path, GOOD_BYTES, "b"), write(tmp_path, GOOD_BYTES * 2, "c")]
    outcomes = on_ranks(3, load_own, paths)
    assert all(isinstance(outcome, DataError) for outcome in outcomes)
    size = len(GOOD_BYTES)
    assert all(f"{size} bytes on rank 0 and {2 * size} on rank 2" in str(outcome) for outcome in outcomes)


def test_of_bad_cells_on_several_ranks_the_first_in_the_file_is_reported(tmp_path: Path) -> None:
    table: list[list[object]] = [list(row) for row in GOOD]
    for line in (11, 20, 29):
        table[line - 1][0] = f"bad{line}"
    path = write(tmp_path, csv_bytes(table))
    for ranks in (1, 2, 3, 4):
        for outcome in on_ranks(ranks, load, path, label_column="last"):
            assert "line 11, column 1: 'bad11'" in str(outcome)


def test_rows_without_labels_are_refused_where_labels_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path, csv_bytes(digits(5, label="none")))
    assert load_dataset(path).labels is None
    with pytest.raises(DataError, match=r"has no labels \(no header, 9 features, no label\); give --label-column"):
        load_dataset(path, need_labels=True)


def test_more_ranks_than_logical_shards_are_refused_on_every_rank(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD_BYTES)
    outcomes = on_ranks(4, load, path, logical_shards=3)
    assert {type(outcome) for outcome in outcomes} == {LaunchError}
    assert len({str(outcome) for outcome in outcomes}) == 1
