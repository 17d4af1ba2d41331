from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpcnn.data import parse
from hpcnn.data.format import CsvFormat
from hpcnn.data.index import build_index
from hpcnn.data.parse import ParsedRows, parse_rows
from hpcnn.errors import DataError
from tests.data.csv_files import csv_bytes, write

CHARACTERS = "0123456789+-.eE \tnaifx_\"';\0é"
FLOAT32_MAX = float(np.finfo(np.float32).max)
PLAIN_NUMBER = re.compile(r"[ \t]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[ \t]*", re.ASCII)


def parsed(
    content: bytes, columns: int, label: int | None = None, rows: range | None = None, classes: int | None = None
) -> ParsedRows:
    with tempfile.TemporaryDirectory() as folder:
        csv_format = CsvFormat(header=False, label_column=label, columns=columns)
        index = build_index(write(Path(folder), content), csv_format)
        return parse_rows(index, csv_format, range(index.rows) if rows is None else rows, classes)


def is_plain(cell: str) -> bool:
    return PLAIN_NUMBER.fullmatch(cell) is not None and abs(float(cell)) <= FLOAT32_MAX


@settings(max_examples=300)
@given(cell=st.text(CHARACTERS, max_size=8), column=st.integers(0, 2))
@example(cell="1e39", column=0)
@example(cell="-1e400", column=1)
@example(cell="1_0", column=1)
@example(cell="1e", column=2)
@example(cell="0x10", column=0)
@example(cell="infinity", column=0)
@example(cell="1\r2", column=1)
def test_a_cell_is_read_as_the_number_it_is_or_refused_with_its_place(cell: str, column: int) -> None:
    row: list[object] = [1, 2, 3]
    row[column] = cell
    content = csv_bytes([[1, 2, 3], row, [4, 5, 6]])
    if is_plain(cell):
        value = parsed(content, 3).features[1, column]
        # Each of text to float64 and float64 to float32 rounds by at most half a float32 unit (2**-24); tiny numbers
        # may round to the nearest multiple of 2**-149, the smallest float32 above zero.
        assert abs(float(value) - float(cell)) <= 2.0**-23 * abs(float(cell)) + 2.0**-149
    else:
        with pytest.raises(DataError, match=rf"rows\.csv, line 2, column {column + 1}: ") as caught:
            parsed(content, 3)
        assert len(str(caught.value).splitlines()) == 1


@given(
    table=st.lists(st.lists(st.integers(0, 255), min_size=4, max_size=4), min_size=1, max_size=30),
    label=st.sampled_from([None, 0, 2, 3]),
    at_once=st.sampled_from([1, 8, 20, 1000]),
)
def test_whole_numbers_up_to_255_are_kept_as_uint8_and_labels_as_int64(
    table: list[list[int]], label: int | None, at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parse, "CELLS_AT_ONCE", at_once)
        result = parsed(csv_bytes(table), 4, label)
    wanted = np.array(table)
    assert result.features.dtype == np.uint8
    if label is None:
        assert result.labels is None
        np.testing.assert_array_equal(result.features, wanted)
    else:
        assert result.labels is not None
        assert result.labels.dtype == np.int64
        np.testing.assert_array_equal(result.labels, wanted[:, label])
        np.testing.assert_array_equal(result.features, np.delete(wanted, label, axis=1))


@pytest.mark.parametrize("value", ["256", "-1", "0.5", "1e-3"])
@pytest.mark.parametrize("row", [0, 5, 9])
def test_one_other_number_makes_all_rows_float32(value: str, row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "CELLS_AT_ONCE", 6)
    table: list[list[object]] = [[i, 10 * i, 255] for i in range(10)]
    table[row][1] = value
    features = parsed(csv_bytes(table), 3).features
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, np.array(table, dtype=np.float32))


def test_minus_zero_is_zero_whatever_stands_in_the_other_rows() -> None:
    assert not np.signbit(parsed(b"-0,0.5\n-0.0,1\n", 2).features).any()


def test_a_part_of_the_rows_is_parsed_alone_and_none_gives_empty_arrays() -> None:
    content = b"bad,row\n1,2\n3,4\n5,x\n"
    result = parsed(content, 2, label=1, rows=range(1, 3))
    np.testing.assert_array_equal(result.features, [[1], [3]])
    np.testing.assert_array_equal(result.labels, [2, 4])
    nothing = parsed(content, 2, label=1, rows=range(2, 2))
    assert nothing.features.shape == (0, 1)
    assert nothing.labels is not None
    assert nothing.labels.shape == (0,)


def test_a_short_row_and_a_long_row_do_not_cancel() -> None:
    with pytest.raises(DataError, match="line 2, column 3: 2 cells where the first line has 3"):
        parsed(b"1,2,3\n1,2\n1,2,3,4\n", 3)
    with pytest.raises(DataError, match="line 1, column 4: 4 cells where the first line has 3"):
        parsed(b"1,2,3,4\n1,2\n", 3)


@pytest.mark.parametrize(
    ("label", "classes", "words"),
    [
        ("-1", None, "label '-1' is negative"),
        ("2.5", None, "label '2.5' is no whole number"),
        ("10", 10, r"label '10' is out of range for the 10 classes \(0 to 9\).*--classes"),
        ("10000", None, r"label '10000' is out of range for the 10000 classes.*--label-column"),
        ("1e30", None, "label '1e30' is out of range"),
    ],
)
def test_a_label_that_is_none_is_refused_with_its_place(label: str, classes: int | None, words: str) -> None:
    with pytest.raises(DataError, match=f"line 3, column 1: {words}"):
        parsed(f"0,7\n1,7\n{label},7\n".encode(), 2, label=0, classes=classes)


def test_whole_labels_written_as_decimals_and_many_classes_on_request_are_taken() -> None:
    result = parsed(b"3.0,7\n2e4,7\n", 2, label=0, classes=30_000)
    np.testing.assert_array_equal(result.labels, [3, 20_000])


def test_the_first_bad_place_of_the_file_is_reported_and_not_the_first_that_pandas_meets() -> None:
    with pytest.raises(DataError, match="line 2, column 2: 'b' is not a number"):
        parsed(b"1,2,3\n4,b,6\nc,8,9\n", 3)
