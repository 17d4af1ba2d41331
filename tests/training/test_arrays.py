"""Rows in memory are the rows of a CSV: kept, cut and checked alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.data.dataset import Dataset, load_dataset
from hpcnn.data.normalise import no_normalisation
from hpcnn.errors import DataError
from hpcnn.training.arrays import Arrays, array_dataset, source_of

SHAPE = (1, 2, 3)
X = np.arange(30, dtype=np.float64).reshape(5, 6)
Y = np.array([0, 1, 2, 1, 0])


def dataset(x: Any = X, y: Any = Y, **changes: Any) -> Dataset:
    return array_dataset(Arrays(x, y), **{"classes": 3, "input_shape": SHAPE, **changes})


@pytest.mark.parametrize("factor", [1.0, 0.1, -0.0])
def test_they_hold_what_a_csv_of_the_same_numbers_holds(tmp_path: Path, factor: float) -> None:
    values = X * factor
    path = tmp_path / "rows.csv"
    np.savetxt(path, np.column_stack([Y, values]), delimiter=",", fmt="%.17g")
    csv = load_dataset(path, classes=3, input_shape=SHAPE, header="no", label_column="first")
    found = dataset(values)
    assert found.features.dtype == csv.features.dtype
    assert found.features.tobytes() == csv.features.tobytes()
    assert found.take_labels(np.arange(5)).tolist() == csv.take_labels(np.arange(5)).tolist() == Y.tolist()
    for name in ("rows", "classes", "logical_shards", "shards", "first_row", "input_shape"):
        assert getattr(found, name) == getattr(csv, name), name


@pytest.mark.parametrize("shape", [(5, 6), (5, 1, 2, 3), (5, 2, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, bool])
def test_shapes_and_kinds_of_numbers_that_fit(shape: tuple[int, ...], dtype: Any) -> None:
    given = X.astype(dtype).reshape(shape)
    batch = dataset(given).batch(np.arange(5), no_normalisation(1))
    np.testing.assert_array_equal(batch, given.reshape(5, *SHAPE).astype(np.float32))


@pytest.mark.parametrize("shape", [(5, 3, 2), (5, 2, 3, 1), (30,), (6, 5), (0, 6)])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    words = f"x is {shape}; the network takes (rows, 1, 2, 3) or (rows, 6) or (rows, 2, 3), at least one row"
    with pytest.raises(DataError) as caught:
        dataset(x, np.zeros(len(x), int))
    assert words in str(caught.value)


def test_an_image_of_three_channels_is_not_taken_for_one_that_ends_in_them() -> None:
    with pytest.raises(DataError, match=r"x is \(5, 2, 2, 3\); the network takes \(rows, 3, 2, 2\) or \(rows, 12\), "):
        dataset(np.zeros((5, 2, 2, 3)), input_shape=(3, 2, 2))


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (X, [0, 1, 2, 1], "y is int64 (4,); give the class number of each of the 5 rows"),
        (X, np.eye(5), "y is float64 (5, 5); give the class number"),
        (X, ["a"] * 5, "y is <U1 (5,); give the class number"),
        (X, [0, 1, 2, 1, 3], "no whole numbers from 0 to 2"),
        (X, [0, 1, 2, 1, -1], "no whole numbers from 0 to 2"),
        (X, [0, 1, 2, 1, np.nan], "no whole numbers from 0 to 2"),
        (X, [0, 1, 2, 1, 0.5], "no whole numbers from 0 to 2"),
        (X * np.nan, Y, "x holds a number that is not finite in 32 bits"),
        (X + 1e39, Y, "x holds a number that is not finite in 32 bits"),
        (X * 1j, Y, "x holds complex128; give an array of numbers"),
        ([["a"]], Y, "x holds <U1; give an array of numbers"),
    ],
)
def test_wrong_numbers_and_labels_are_refused_in_one_line(x: Any, y: Any, words: str) -> None:
    with pytest.raises(DataError) as caught:
        dataset(x, y)
    assert str(caught.value).startswith("(arrays): ")
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_labels_may_lack_only_where_none_are_needed() -> None:
    assert dataset(X, None).labels is None
    with pytest.raises(DataError, match=r"have no labels; give \(x, y\)"):
        dataset(X, None, need_labels=True)


def test_what_a_person_may_give_for_rows(tmp_path: Path) -> None:
    assert source_of("a.csv") == "a.csv"
    assert source_of(tmp_path) == str(tmp_path)
    pair, alone = source_of((X, Y)), source_of(X)
    assert isinstance(pair, Arrays)
    assert pair.x is X
    assert pair.y is Y
    assert isinstance(alone, Arrays)
    assert (alone.x is X, alone.y) == (True, None)
