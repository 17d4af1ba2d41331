from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcnn.data.dataset import Dataset, aligned_empty, load_dataset
from hpcnn.data.normalise import Normalisation, no_normalisation
from hpcnn.data.order import BatchOrder
from hpcnn.errors import ConfigError, DataError
from tests.data.csv_files import csv_bytes, digits, write
from tests.data.load_on_ranks import load
from tests.support.pool import on_ranks, results


def load_on(ranks: int, path: Path, **options: object) -> list[Dataset]:
    return results(on_ranks(ranks, load, path, **options))


@settings(max_examples=40)
@given(
    rows=st.integers(1, 60),
    shards=st.one_of(st.none(), st.integers(1, 70)),
    batch=st.one_of(st.none(), st.integers(1, 80)),
    ranks=st.integers(1, 5),
    label=st.sampled_from(["first", "last", "none"]),
)
def test_ranks_hold_disjoint_consecutive_intervals_that_make_the_whole_file(
    rows: int, shards: int | None, batch: int | None, ranks: int, label: str
) -> None:
    table = np.array(digits(rows, label=label))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), csv_bytes(table.tolist()))
        options = {"logical_shards": shards, "global_batch": batch, "label_column": label, "spare_ranks": True}
        datasets = load_on(ranks, path, **options)
    images = {"first": table[:, 1:], "last": table[:, :-1], "none": table}[label]
    whole = np.concatenate([dataset.features for dataset in datasets])
    np.testing.assert_array_equal(whole, images.reshape(rows, 1, 3, 3))
    ends = np.cumsum([len(dataset.features) for dataset in datasets]).tolist()
    assert [dataset.first_row for dataset in datasets] == [0, *ends[:-1]]
    assert {dataset.logical_shards for dataset in datasets} == {shards or min(64, batch or 64, rows)}
    assert [shard for dataset in datasets for shard in dataset.shards] == list(range(datasets[0].logical_shards))
    assert {dataset.rows for dataset in datasets} == {rows}
    if label == "none":
        assert all(dataset.labels is None and dataset.classes is None for dataset in datasets)
    else:
        labels = np.concatenate([dataset.labels for dataset in datasets if dataset.labels is not None])
        np.testing.assert_array_equal(labels, np.arange(rows) % 10)
        assert {dataset.classes for dataset in datasets} == {min(rows, 10)}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_global_batches_hold_the_same_numbers_at_any_number_of_ranks(tmp_path: Path, ranks: int) -> None:
    table = np.array(digits(101))
    path = write(tmp_path, csv_bytes(table.tolist(), end="\r\n"))
    datasets = load_on(ranks, path, global_batch=17)
    order = BatchOrder(101, datasets[0].logical_shards, 17, 0.2, seed=1)
    half = Normalisation(np.zeros(1, np.float32), np.full(1, 0.5, np.float32))
    for step in range(order.steps_per_epoch):
        everything = order.rows(2, step, range(order.logical_shards))
        for dataset in datasets:
            rows = order.rows(2, step, dataset.shards)
            assert len(rows) == order.count(step, dataset.shards)
            np.testing.assert_array_equal(dataset.batch(rows, half).reshape(-1, 9), table[rows, :-1] / 2)
            np.testing.assert_array_equal(dataset.take_labels(rows), table[rows, -1])
            everything = everything[~np.isin(everything, rows)]
        assert not len(everything)


def test_a_batch_is_float32_normalised_by_channel_and_aligned(tmp_path: Path) -> None:
    table = np.random.default_rng(1).integers(0, 256, (6, 12))
    path = write(tmp_path, csv_bytes(table.tolist()))
    dataset = load_dataset(path, label_column="none")
    assert dataset.input_shape == (3, 2, 2)
    normalisation = Normalisation(np.array([1, 2, 3], np.float32), np.array([1, 0.5, 0.25], np.float32))
    batch = dataset.batch(np.array([5, 0, 5]), normalisation)
    images = table[[5, 0, 5]].reshape(3, 3, 2, 2)
    wanted = (images - np.array([1, 2, 3])[:, None, None]) * np.array([1, 0.5, 0.25])[:, None, None]
    assert (batch.dtype, batch.flags.c_contiguous, batch.ctypes.data % 64) == (np.float32, True, 0)
    np.testing.assert_array_equal(batch, wanted)  # small whole numbers times powers of two: exact in float32


def test_a_given_buffer_is_filled_from_its_start(tmp_path: Path) -> None:
    path = write(tmp_path, csv_bytes(digits(6)))
    dataset = load_dataset(path, label_column="last")
    buffer = aligned_empty((5, 1, 3, 3))
    batch = dataset.batch(np.array([1, 2]), no_normalisation(1), out=buffer)
    assert batch.base is buffer.base
    assert batch.ctypes.data == buffer.ctypes.data
    np.testing.assert_array_equal(batch, dataset.features[[1, 2]])
    assert dataset.batch(np.array([], np.int64), no_normalisation(1), out=buffer).shape == (0, 1, 3, 3)


@pytest.mark.parametrize("shape", [(1,), (7, 3, 5), (1000, 1, 28, 28)])
def test_buffers_start_on_a_64_byte_boundary(shape: tuple[int, ...]) -> None:
    buffers = [aligned_empty(shape) for _ in range(20)]
    assert all(buffer.ctypes.data % 64 == 0 and buffer.shape == shape for buffer in buffers)
    assert all(buffer.dtype == np.float32 and buffer.flags.c_contiguous for buffer in buffers)


@pytest.mark.parametrize("rows", [[2], [7], [3, 9]])
def test_rows_of_another_rank_are_an_index_error_and_not_other_rows(tmp_path: Path, rows: list[int]) -> None:
    path = write(tmp_path, csv_bytes(digits(12)))
    dataset = load_on(3, path, logical_shards=4)[1]
    assert (dataset.first_row, len(dataset.features)) == (3, 3)
    with pytest.raises(IndexError, match="of which this rank holds"):
        dataset.batch(np.array(rows), no_normalisation(1))


def test_labels_of_a_file_without_any_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, csv_bytes(digits(5, label="none")))
    with pytest.raises(DataError, match=r"has no labels; give --label-column"):
        load_dataset(path).take_labels(np.array([0]))


def test_classes_that_are_given_stand_and_the_input_shape_too(tmp_path: Path) -> None:
    path = write(tmp_path, csv_bytes([[1, 2, 3, 4, 5, 6, 0], [1, 2, 3, 4, 5, 6, 1]]))
    dataset = load_dataset(path, classes=12, input_shape=(1, 2, 3))
    assert (dataset.classes, dataset.input_shape) == (12, (1, 2, 3))
    with pytest.raises(DataError, match="--input-shape"):
        load_dataset(path)


def test_a_number_of_logical_shards_below_one_is_refused_on_every_rank(tmp_path: Path) -> None:
    path = write(tmp_path, csv_bytes(digits(12)))
    outcomes = on_ranks(2, load, path, logical_shards=0)
    assert {type(outcome) for outcome in outcomes} == {ConfigError}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_rank_reads_little_more_than_its_own_interval(tmp_path: Path, ranks: int) -> None:
    """Rank 0 reads the head (here its format shows within 1 MiB, more than the file), the others their part."""
    content = csv_bytes(digits(4000, pixels=16))
    path = write(tmp_path, content)
    longest = max(map(len, content.split(b"\n"))) + 1
    for dataset in load_on(ranks, path, logical_shards=12, label_column="last")[1:]:
        offset = len(b"\n".join(content.split(b"\n")[: dataset.first_row]))
        own = len(b"\n".join(content.split(b"\n")[dataset.first_row :][: len(dataset.features)])) + 1
        scanned_from = len(content) * dataset.shards.start // 12
        # Outside its rows a rank reads what the cut by bytes and the cut by rows differ in, at either end.
        assert dataset.bytes_read <= own + abs(offset - scanned_from) + 4 * longest
        assert dataset.bytes_read < 1.05 * len(content) / ranks
