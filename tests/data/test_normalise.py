from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcnn.data.agree import Communicator
from hpcnn.data.dataset import load_dataset
from hpcnn.data.normalise import NORMALISATIONS, Normalisation, fit_normalisation
from hpcnn.data.order import BatchOrder
from hpcnn.errors import ConfigError
from tests.data.csv_files import csv_bytes, write
from tests.support.pool import on_ranks, results


def fit(comm: Communicator, kind: str, path: Path, shards: int, fraction: float) -> Normalisation:
    dataset = load_dataset(path, comm=comm, logical_shards=shards, label_column="none")
    return fit_normalisation(kind, dataset, BatchOrder(dataset.rows, shards, 5, fraction, seed=2), comm)


def fitted(kind: str, ranks: int, path: Path, shards: int, fraction: float = 0.0) -> list[Normalisation]:
    return results(on_ranks(ranks, fit, kind, path, shards, fraction))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(8, 40),
    shards=st.integers(4, 12),
    kind=st.sampled_from(list(NORMALISATIONS)),
    values=st.sampled_from(["whole", "real", "cancelling"]),
)
def test_a_normalisation_is_the_same_to_the_bit_at_any_number_of_ranks(
    seed: int, rows: int, shards: int, kind: str, values: str
) -> None:
    """The mean of values of all sizes that cancel is nothing but rounding: it shows the order of the additions."""
    generator, fraction = np.random.default_rng(seed), 0.0 if values == "cancelling" else 0.2
    table = generator.normal(100, 50, (rows, 12))
    if values == "whole":
        table = np.abs(table).astype(int)
    if values == "cancelling":
        table *= 10.0 ** generator.integers(0, 12, table.shape)
        table = generator.permutation(np.concatenate([table, -table]))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), csv_bytes(table.tolist()))
        alone = fitted(kind, 1, path, shards, fraction)[0]
        for ranks in (2, 3, 4):
            for other in fitted(kind, ranks, path, shards, fraction):
                assert alone.shift.tobytes() == other.shift.tobytes()
                assert alone.scale.tobytes() == other.scale.tobytes()


def test_standard_gives_each_channel_mean_0_and_deviation_1_over_the_training_rows(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal([[1e4] * 4 + [-3] * 4 + [0] * 4], [[1] * 4 + [5] * 4 + [2] * 4], (700, 12))
    path = write(tmp_path, csv_bytes(values.tolist()))
    normalisation = fitted("standard", 2, path, 2)[0]
    channels = values.reshape(700, 3, 4).transpose(1, 0, 2).reshape(3, -1)
    # float32 cells are off by half a unit (2**-24 relative), the mean and deviation in float32 by another half each.
    np.testing.assert_allclose(normalisation.shift, channels.mean(axis=1), rtol=2.0**-23)
    absolute = 2.0**-24 * np.abs(channels).max(axis=1)
    np.testing.assert_allclose(1 / normalisation.scale, channels.std(axis=1), rtol=2.0**-22, atol=absolute.max())


def test_only_training_rows_count(tmp_path: Path) -> None:
    order = BatchOrder(20, 4, 5, 0.25, seed=2)
    table = np.ones((20, 9), int)
    for shard in range(4):
        table[order.validation_rows(shard)] = 200
    path = write(tmp_path, csv_bytes(table.tolist()))
    standard, scale = fitted("standard", 3, path, 4, 0.25)[0], fitted("scale", 3, path, 4, 0.25)[0]
    assert (standard.shift[0], standard.scale[0]) == (1, 1)
    assert (scale.shift[0], scale.scale[0]) == (0, 1)


def test_scale_divides_by_the_largest_value_of_all_channels(tmp_path: Path) -> None:
    path = write(tmp_path, csv_bytes([[3] * 4 + [250] * 4 + [7] * 4, [1] * 12]))
    normalisation = fitted("scale", 1, path, 1)[0]
    np.testing.assert_array_equal(normalisation.scale, np.full(3, 1 / 250, np.float32))
    np.testing.assert_array_equal(normalisation.shift, np.zeros(3, np.float32))


@pytest.mark.parametrize("kind", ["scale", "standard"])
def test_data_of_zeros_stay_zeros(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, csv_bytes([[0] * 9] * 4))
    assert fitted(kind, 1, path, 1)[0].scale.tolist() == [1.0]


def test_none_leaves_values_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path, csv_bytes([[0.1] * 9, [-7] * 9]))
    dataset = load_dataset(path, label_column="none")
    normalisation = fitted("none", 1, path, 1)[0]
    np.testing.assert_array_equal(dataset.batch(np.array([0, 1]), normalisation), dataset.features)


def test_an_unknown_kind_lists_the_choices(tmp_path: Path) -> None:
    path = write(tmp_path, csv_bytes([[0] * 9] * 4))
    with pytest.raises(ConfigError, match="normalisation 'batch' is unknown; choose from none, scale, standard"):
        fitted("batch", 1, path, 1)
