from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ConfigError
from hpcnn.network.counter import Purpose, philox_words, uniform

WORD = 2**64 - 1


def philox4x64(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds as the paper defines them (Salmon et al., SC 2011, section 3.3)."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = right >> 64 ^ c1 ^ k0, right & WORD, left >> 64 ^ c3 ^ k1, left & WORD
        k0, k1 = k0 + 0x9E3779B97F4A7C15 & WORD, k1 + 0xBB67AE8584CAA73B & WORD
    return [c0, c1, c2, c3]


def test_philox_of_this_file_gives_the_published_answer() -> None:
    # Known answer of Random123 (kat_vectors: philox4x64 10, all zero).
    assert [f"{word:016x}" for word in philox4x64([0, 0, 0, 0], [0, 0])] == [
        "16554d9eca36314c",
        "db20fe9d672d0fdc",
        "d7e772cee186176b",
        "7e68b68aec7ba23b",
    ]


@given(st.integers(0, WORD), st.sampled_from(Purpose), st.integers(0, WORD), st.integers(0, WORD))
def test_words_are_philox_of_the_documented_key_and_counter(seed: int, purpose: Purpose, a: int, b: int) -> None:
    expected = philox4x64([1, a, b, 0], [seed, purpose]) + philox4x64([2, a, b, 0], [seed, purpose])
    assert philox_words(seed, (purpose, a, b), 8).tolist() == expected


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_shorter_draw_is_the_start_of_a_longer_one(short: int, more: int) -> None:
    stream = (Purpose.SHUFFLE, 3, 4)
    assert uniform(5, stream, short + more)[:short].tolist() == uniform(5, stream, short).tolist()


def test_streams_differ_in_each_of_their_parts() -> None:
    streams = [(0, (1, 2, 3)), (1, (1, 2, 3)), (0, (2, 2, 3)), (0, (1, 0, 3)), (0, (1, 2, 0)), (0, (1, 3, 2))]
    assert len({int(philox_words(seed, stream, 1)[0]) for seed, stream in streams}) == len(streams)


def test_uniform_numbers_keep_53_bits_and_stay_below_1() -> None:
    draws = uniform(0, (Purpose.SHUFFLE, 0, 0), 100_000)
    words = philox_words(0, (Purpose.SHUFFLE, 0, 0), 100_000)
    assert draws.dtype == np.float64
    assert (draws * 2**53 == (words >> np.uint64(11)).astype(np.float64)).all()
    assert draws.min() >= 0
    assert draws.max() < 1
    # The mean of n uniform numbers has standard deviation 1 / sqrt(12 n); five of them.
    assert abs(draws.mean() - 0.5) < 5 / np.sqrt(12 * draws.size)


def test_purposes_keep_their_numbers() -> None:
    assert [(purpose.name, int(purpose)) for purpose in Purpose] == [
        ("INITIAL_WEIGHTS", 1),
        ("SHUFFLE", 2),
        ("VALIDATION", 3),
        ("DROPOUT", 4),
    ]


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True, "1"])
def test_a_wrong_seed_is_refused_by_value(seed: object) -> None:
    with pytest.raises(
        ConfigError, match=rf"seed is {seed!r}; it must be a whole number from 0 to 18446744073709551615"
    ):
        uniform(seed, (Purpose.SHUFFLE, 0, 0), 1)  # type: ignore[arg-type]
