"""16 bits a number: packed as the formats say, and their sums the same on all ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hpcnn.parallel.reducers.wire import FORMATS
from tests.parallel.reducers.sums import packed_sum
from tests.support.pool import on_ranks, results

NUMBERS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(arrays(np.float32, st.integers(0, 50), elements=NUMBERS))
def test_bfloat16_is_the_nearest_number_with_eight_bits(numbers: np.ndarray) -> None:
    packing = FORMATS["bfloat16"]
    back = packing.unpack(packing.pack(numbers)).astype(np.float64)
    given_numbers = numbers.astype(np.float64)
    nan = np.isnan(given_numbers)
    assert np.array_equal(np.isnan(back), nan)
    largest = float(np.float32(2.0**127) * (2 - 2.0**-7))
    finite = np.isfinite(given_numbers) & (np.abs(given_numbers) <= largest)
    # the distance of neighbours is 2^-7 times the power of two below, and 2^-133 beneath the normal range
    exponent = np.floor(np.log2(np.maximum(np.abs(given_numbers[finite]), 2.0**-126)))
    assert (np.abs(back[finite] - given_numbers[finite]) <= 2.0 ** (exponent - 8)).all()
    assert np.array_equal(packing.pack(packing.unpack(packing.pack(numbers))), packing.pack(numbers))


@given(arrays(np.float32, st.integers(0, 50), elements=st.floats(-60000, 60000, width=32)))
def test_float16_is_what_numpy_rounds_to(numbers: np.ndarray) -> None:
    packing = FORMATS["float16"]
    assert np.array_equal(packing.unpack(packing.pack(numbers)), numbers.astype(np.float16).astype(np.float32))


def test_what_float16_cannot_hold_becomes_infinite() -> None:
    packing = FORMATS["float16"]
    numbers = np.array([65504, 65520, -1e6], np.float32)
    assert packing.unpack(packing.pack(numbers)).tolist() == [65504, np.inf, -np.inf]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_sizes_that_ranks_cannot_share_evenly(name: str, size: int) -> None:
    first, *others = results(on_ranks(3, packed_sum, size, name))
    assert np.isfinite(first).all()
    assert all(other.tobytes() == first.tobytes() for other in others)
