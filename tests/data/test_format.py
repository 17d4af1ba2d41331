from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.data.format import CsvFormat, detect_format
from hpcnn.data.shape import image_shape, input_shape_of
from hpcnn.errors import ConfigError, DataError
from tests.data.csv_files import csv_bytes, digits, write

PIXELS = [f"pixel{i}" for i in range(9)]


def detected(folder: Path, content: bytes, **options: object) -> CsvFormat:
    return detect_format(write(folder, content), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("label", ["first", "last"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_label_positions_are_found_with_and_without_a_header(
    tmp_path: Path, label: str, header: bool, end: str
) -> None:
    names = ["label", *PIXELS] if label == "first" else [*PIXELS, "label"]
    content = csv_bytes(digits(20, label=label), names=names if header else None, end=end)
    found = detected(tmp_path, content)
    column = 0 if label == "first" else 9
    assert found == CsvFormat(
        header=header,
        label_column=column,
        columns=10,
        names=tuple(names) if header else (),
        start=content.index(b"\n") + 1 if header else 0,
    )
    assert found.features == 9
    name = " ('label')" if header else ""
    assert found.describe() == f"{'a' if header else 'no'} header, 9 features, label {label}{name}"


@pytest.mark.parametrize("header", [True, False])
def test_a_square_number_of_columns_has_no_label(tmp_path: Path, header: bool) -> None:
    found = detected(tmp_path, csv_bytes(digits(5, label="none"), names=PIXELS if header else None))
    assert (found.label_column, found.features) == (None, 9)
    assert found.describe().endswith("header, 9 features, no label")


@pytest.mark.parametrize("name", ["label", "Class", " TARGET ", "y"])
def test_a_header_cell_that_names_the_label_decides_whatever_the_values(tmp_path: Path, name: str) -> None:
    names = [*PIXELS[:4], name, *PIXELS[4:]]
    found = detected(tmp_path, csv_bytes([[7] * 10], names=names))
    assert found.label_column == 4
    assert "label in column 5" in found.describe()


def test_a_header_without_a_labels_name_leaves_it_to_the_values(tmp_path: Path) -> None:
    assert detected(tmp_path, csv_bytes(digits(20), names=[*PIXELS, "digit"])).label_column == 9


@pytest.mark.parametrize(
    ("wanted", "column"),
    [("first", 0), ("last", 9), ("none", None), ("digit", 4), ("7", 7), (7, 7), ("2", 9), ("label", 8)],
)
def test_the_label_column_can_be_given_by_place_name_or_number(
    tmp_path: Path, wanted: str | int, column: int | None
) -> None:
    names = ["a", "b", "c", "d", "digit", "f", "g", "h", "label", "2"]  # a name comes before a number
    found = detected(tmp_path, csv_bytes(digits(3), names=names), label_column=wanted)
    assert found.label_column == column


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("digits", "no column named 'digits' in the header"),
        ("12", "no label column 12: they are 0 to 9"),
        (-1, "no label column -1: they are 0 to 9"),
    ],
)
def test_a_label_column_that_does_not_exist_is_refused(tmp_path: Path, wanted: str | int, words: str) -> None:
    with pytest.raises(DataError, match=rf"{words}.*give --label-column"):
        detected(tmp_path, csv_bytes(digits(3), names=[*PIXELS, "label"]), label_column=wanted)


def test_a_name_without_a_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column named 'label' because there is no header"):
        detected(tmp_path, csv_bytes(digits(3)), label_column="label")


def ambiguous_files() -> dict[str, tuple[bytes, str]]:
    rows = digits(20)
    both = [[index % 3, *row[1:]] for index, row in enumerate(rows)]
    return {
        "both ends could be labels": (csv_bytes(both), "the first column could be the label, and so could the last"),
        "neither end varies": (
            csv_bytes([[0] * 10] * 4),
            "no label found .first column: always '0'; last column: always '0'",
        ),
        "neither end is whole": (
            csv_bytes([[0.5, *[0] * 8, -1], [0.25, *[0] * 8, 3]]),
            r"first column: '0\.25' is no label; last column: '-1' is no label",
        ),
        "two names": (
            csv_bytes(rows, names=["class", *PIXELS[1:], "label"]),
            r"several columns may be the label: 'class' \(0\), 'label' \(9\)",
        ),
        "an image with and without a label": (csv_bytes([[1, 2, 3, 4], [0, 2, 3, 4]]), "4 columns make an image with"),
        "no image at all": (csv_bytes([[1] * 8]), "8 columns are not a square image.*--input-shape"),
    }


@pytest.mark.parametrize("case", list(ambiguous_files()))
def test_a_file_with_two_readings_is_refused_with_the_flag_to_give(tmp_path: Path, case: str) -> None:
    content, words = ambiguous_files()[case]
    with pytest.raises(DataError, match=words) as caught:
        detected(tmp_path, content)
    assert "give --label-column" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_known_number_of_features_tells_whether_there_is_a_label(tmp_path: Path) -> None:
    four = csv_bytes([[0, 2, 3, 4], [0, 2, 3, 5]])
    assert detected(tmp_path, four, features=4).label_column is None
    assert detected(tmp_path, four, features=3).label_column == 3
    with pytest.raises(DataError, match="4 columns, but the network takes 12 features, with or without a label"):
        detected(tmp_path, four, features=12)


def test_names_among_numbers_are_a_header_only_if_one_names_the_label(tmp_path: Path) -> None:
    numbered = [*map(str, range(9)), "label"]
    assert detected(tmp_path, csv_bytes(digits(3), names=numbered)).header
    content = csv_bytes([[*row[:4], "x", *row[5:]] for row in digits(3)])
    with pytest.raises(DataError, match=r"line 1, column 5: 'x' is no number .* give --header yes\|no"):
        detected(tmp_path, content)
    assert detected(tmp_path, content, header="yes", label_column="last").header
    assert not detected(tmp_path, content, header="no", label_column="last").header


@pytest.mark.parametrize("cell", ["", "nan", "-inf"])
def test_a_first_row_with_a_missing_value_is_not_taken_for_a_header(tmp_path: Path, cell: str) -> None:
    with pytest.raises(DataError, match=r"line 1, column 2: '.*' is no number and this line no header"):
        detected(tmp_path, csv_bytes([[1, cell, 3], [1, 2, 3]]))


def test_a_header_of_other_numbers_can_be_told(tmp_path: Path) -> None:
    content = csv_bytes([list(range(1, 11)), *digits(20)])
    assert detected(tmp_path, content, label_column="last").start == 0
    assert detected(tmp_path, content, header="yes").start == len(b"1,2,3,4,5,6,7,8,9,10\n")


def test_an_unknown_word_for_the_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="header 'maybe': give auto, yes or no"):
        detected(tmp_path, csv_bytes(digits(3)), header="maybe")


@pytest.mark.parametrize("head_bytes", [1, 10, 100, 10_000])
def test_a_head_smaller_than_a_line_grows_until_it_holds_a_row(tmp_path: Path, head_bytes: int) -> None:
    content = csv_bytes(digits(20), names=[*PIXELS, "label"])
    assert detected(tmp_path, content, head_bytes=head_bytes) == detected(tmp_path, content)


def test_a_byte_order_mark_is_no_part_of_the_first_cell(tmp_path: Path) -> None:
    found = detected(tmp_path, b"\xef\xbb\xbf" + csv_bytes(digits(20)))
    assert (found.header, found.start) == (False, 3)
    named = detected(tmp_path, b"\xef\xbb\xbf" + csv_bytes(digits(20, label="first"), names=["label", *PIXELS]))
    assert (named.header, named.names[0]) == (True, "label")


@given(side=st.integers(1, 2000), channels=st.sampled_from([1, 3]))
def test_square_images_of_one_or_three_channels_are_recognised(side: int, channels: int) -> None:
    assert image_shape(channels * side * side) == (channels, side, side)


@given(features=st.integers(0, 10**7))
def test_a_recognised_image_has_as_many_pixels_as_there_are_features(features: int) -> None:
    shape = image_shape(features)
    assert shape is None or (shape[0] * shape[1] * shape[2] == features and shape[1] == shape[2] > 0)


def test_the_input_shape_is_inferred_or_held_against_the_features() -> None:
    assert input_shape_of("x.csv", 784, None) == (1, 28, 28)
    assert input_shape_of("x.csv", 12, (2, 2, 3)) == (2, 2, 3)
    with pytest.raises(DataError, match=r"x\.csv: has 12 features a row, but the input shape 1x2x2 needs 4"):
        input_shape_of("x.csv", 12, (1, 2, 2))
    with pytest.raises(DataError, match=r"13 features make no square image.*--input-shape"):
        input_shape_of("x.csv", 13, None)


@pytest.mark.parametrize("label", ["first", "last"])
def test_column_numbers_in_place_of_names_are_a_header(tmp_path: Path, label: str) -> None:
    numbered = csv_bytes(digits(20, label=label), names=[str(column) for column in range(10)])
    found = detected(tmp_path, numbered)
    assert found.header
    assert found.label_column == (0 if label == "first" else 9)
    assert not detected(tmp_path, numbered, header="no", label_column=label).header
