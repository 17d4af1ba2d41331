from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ConfigError
from hpcnn.network import Architecture, Dense, Dropout, Flatten, Softmax, dropout_mask, segment_masks
from hpcnn.network.masks import splitmix64

ROWS = st.lists(st.integers(0, 2**40), max_size=12)


def words(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.uint64)


def test_words_are_the_published_outputs_of_splitmix64() -> None:
    # Vigna's splitmix64.c with seed 1234567, as quoted at https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64
    assert splitmix64(words(1234567), words(0, 1, 2, 3, 4)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_a_mask_is_the_documented_function_of_its_element() -> None:
    seed, layer, epoch, row, unit, rate = 11, 3, 2, 4711, 5, 0.25
    key = words(seed)
    for level in (layer, epoch, row, unit // 2):
        key = splitmix64(key, words(level))
    draw = int(key[0]) >> (32 * (unit % 2)) & 0xFFFFFFFF
    expected = 0.0 if draw < rate * 2**32 else 1 / (1 - rate)
    assert dropout_mask(seed, layer, epoch, np.array([row]), 6, rate)[0, unit] == np.float32(expected)


@given(ROWS, st.integers(0, 9), st.integers(0, 5))
def test_an_element_depends_on_no_other_row_and_on_no_other_unit(rows: list[int], units: int, more: int) -> None:
    mask = dropout_mask(1, 2, 3, np.array(rows, dtype=np.int64), units + more, 0.5)
    assert mask.shape == (len(rows), units + more)
    for row, line in zip(rows, mask, strict=True):
        assert line[:units].tolist() == dropout_mask(1, 2, 3, np.array([row]), units, 0.5)[0].tolist()


def test_the_bits_of_a_mask_never_change() -> None:
    mask = dropout_mask(0, 1, 2, np.arange(100, 200), 77, 0.25)
    assert sha256(np.packbits(mask > 0).tobytes()).hexdigest()[:16] == "1c9c5479dd89e9d9"


@pytest.mark.parametrize("rate", [0.25, 0.5, 0.9])
def test_the_dropped_share_is_the_rate_and_the_kept_are_scaled(rate: float) -> None:
    mask = dropout_mask(5, 1, 0, np.arange(1000), 1000, rate)
    assert mask.dtype == np.float32
    assert set(np.unique(mask).tolist()) == {0.0, float(np.float32(1 / (1 - rate)))}
    # A share of n draws has standard deviation sqrt(p q / n); five of them for the whole, six for each of the 2,000
    # rows and columns (probability of a false alarm: 2,000 x 2e-9).
    deviation = np.sqrt(rate * (1 - rate))
    dropped = mask == 0
    assert abs(dropped.mean() - rate) < 5 * deviation / 1000
    assert np.abs(dropped.mean(axis=0) - rate).max() < 6 * deviation / np.sqrt(1000)
    assert np.abs(dropped.mean(axis=1) - rate).max() < 6 * deviation / np.sqrt(1000)


def test_a_rate_of_0_keeps_all_and_one_just_below_1_is_possible() -> None:
    assert (dropout_mask(0, 0, 0, np.arange(50), 51, 0.0) == 1).all()
    assert dropout_mask(0, 0, 0, np.arange(50), 51, 1 - 2**-53).max() <= 2**53


BASE = {"seed": 0, "layer_index": 1, "epoch": 2, "rows": np.arange(500)}
OTHERS = {
    "seed": {"seed": 1},
    "layer": {"layer_index": 2},
    "epoch": {"epoch": 3},
    "rows": {"rows": np.arange(500, 1000)},
    "layer and epoch exchanged": {"layer_index": 2, "epoch": 1},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_masks_that_differ_in_one_input_are_uncorrelated(other: dict[str, Any]) -> None:
    first, second = (dropout_mask(**{**BASE, **change}, units=400, rate=0.5) - 1 for change in ({}, other))
    # Elements are -1 or 1; the mean of n products of independent ones has standard deviation 1 / sqrt(n); five of them.
    assert abs((first * second).mean()) < 5 / np.sqrt(first.size)


@pytest.mark.parametrize(("down", "right"), [(0, 1), (0, 2), (1, 0), (1, 1), (1, -1), (2, 0), (16, 0), (0, 32)])
def test_neighbouring_rows_and_units_are_uncorrelated(down: int, right: int) -> None:
    signs = dropout_mask(0, 1, 2, np.arange(600), 600, 0.5) - 1
    products = (signs * np.roll(signs, (down, right), axis=(0, 1)))[down:]
    assert abs(products.mean()) < 5 / np.sqrt(products.size)


def test_a_segment_has_the_masks_of_its_own_dropouts_in_their_shapes() -> None:
    layers = (Dropout(rate=0.1), Flatten(), Dense(units=7), Dropout(rate=0.5), Dense(units=3), Softmax())
    architecture = Architecture("x", (2, 3, 5), layers)
    rows = np.array([9, 4, 4000])
    whole = segment_masks(architecture.whole, 8, 1, rows)
    assert [mask.shape for mask in whole] == [(3, 2, 3, 5), (3, 7)]
    assert whole[0].reshape(3, -1).tolist() == dropout_mask(8, 0, 1, rows, 30, 0.1).tolist()
    assert whole[1].tolist() == dropout_mask(8, 3, 1, rows, 7, 0.5).tolist()
    last = segment_masks(architecture.segment(2, 6), 8, 1, rows[1:])
    assert [mask.tolist() for mask in last] == [whole[1][1:].tolist()]
    assert segment_masks(architecture.segment(4, 6), 8, 1, rows) == ()
    assert [mask.shape for mask in segment_masks(architecture.whole, 8, 1, rows[:0])] == [(0, 2, 3, 5), (0, 7)]


def test_a_wrong_seed_is_refused_for_masks_too() -> None:
    with pytest.raises(ConfigError, match="seed is -1"):
        dropout_mask(-1, 0, 0, np.arange(3), 4, 0.5)
