"""Statistics of scaling: held against hand-computed cases, against scipy, and against what the laws themselves say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from hpcnn.studies.scaling import Law, fit_law, karp_flatt, scaled_fraction, speedups, spread, t_quantile

RANKS = (1, 2, 4, 8)
fractions = st.floats(0.0, 1.0)
rates = st.floats(1e-3, 1e7)


def law_of(law: Law, serial: float, ranks: int) -> float:
    """The speed-up as the two papers write it."""
    return 1 / (serial + (1 - serial) / ranks) if law == "Amdahl" else serial + (1 - serial) * ranks


def noisy(law: Law, serial: float, seed: int, repeats: int = 3, noise: float = 0.03) -> dict[int, list[float]]:
    random = np.random.default_rng(seed)
    return {
        ranks: [500 * law_of(law, serial, ranks) * (1 + noise * random.standard_normal()) for _ in range(repeats)]
        for ranks in RANKS
    }


def test_a_spread_is_median_and_quartiles_of_what_is_known() -> None:
    found = spread([4.0, math.nan, 1.0, 2.0, 3.0])
    assert (found.median, found.low, found.high, found.count) == (2.5, 1.75, 3.25, 4)
    assert spread([7.0]).low == spread([7.0]).high == 7.0
    nothing = spread([math.nan])
    assert nothing.count == 0
    assert all(math.isnan(value) for value in (nothing.median, nothing.low, nothing.high))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_quartiles_are_scipys(values: list[float]) -> None:
    found = spread(values)
    expected = stats.mstats.mquantiles(values, [0.25, 0.5, 0.75], alphap=1, betap=1)
    assert [found.low, found.median, found.high] == pytest.approx(list(expected))
    assert found.high - found.low == pytest.approx(stats.iqr(values), abs=1e-6)


def test_a_speedup_is_of_each_repeat_over_each_repeat_of_the_base() -> None:
    assert speedups([300.0, 330.0], [100.0, 150.0]).tolist() == pytest.approx([3.0, 2.0, 3.3, 2.2])
    assert speedups([300.0], [150.0], base_ranks=2).tolist() == [4.0]


@given(rates, st.integers(1, 512))
def test_ideal_scaling_is_an_efficiency_of_1(rate: float, ranks: int) -> None:
    found = spread(speedups([rate * ranks] * 3, [rate] * 2))
    assert found.median / ranks == pytest.approx(1, rel=1e-12)
    if ranks > 1:
        assert karp_flatt(found.median, ranks) == pytest.approx(0, abs=1e-12)
        assert scaled_fraction(found.median, ranks) == pytest.approx(0, abs=1e-12)


@given(st.lists(rates, min_size=1, max_size=6))
def test_the_base_over_itself_is_1(own: list[float]) -> None:
    assert spread(speedups(own, own)).median == pytest.approx(1, rel=1e-12)


def test_karp_and_flatts_fraction_by_hand() -> None:
    # (1 / 1.95 - 1 / 2) / (1 / 2), (1 / 3.7 - 1 / 4) / (3 / 4), (1 / 6.6 - 1 / 8) / (7 / 8)
    found = [karp_flatt(speedup, ranks) for speedup, ranks in ((1.95, 2), (3.70, 4), (6.60, 8))]
    assert found == pytest.approx([0.0256, 0.0270, 0.0303], abs=1e-4)
    assert math.isnan(karp_flatt(1.0, 1))
    assert karp_flatt(2.2, 2) < 0, "faster than ideal shows"


@given(fractions, st.integers(2, 256))
def test_each_point_of_a_law_tells_its_serial_fraction(serial: float, ranks: int) -> None:
    assert karp_flatt(law_of("Amdahl", serial, ranks), ranks) == pytest.approx(serial, abs=1e-9)
    assert scaled_fraction(law_of("Gustafson", serial, ranks), ranks) == pytest.approx(serial, abs=1e-9)


@pytest.mark.parametrize("law", ["Amdahl", "Gustafson"])
@given(serial=fractions, rate=rates, ranks=st.sets(st.integers(1, 64), min_size=2, max_size=6))
def test_a_law_is_found_again_from_times_without_noise(law: Law, serial: float, rate: float, ranks: set[int]) -> None:
    fit = fit_law(law, {count: [rate * law_of(law, serial, count)] * 2 for count in ranks})
    assert fit is not None
    assert fit.serial == pytest.approx(serial, abs=1e-6)
    assert fit.rate == pytest.approx(rate, rel=1e-6)
    assert fit.low == pytest.approx(fit.high, abs=1e-4)
    for count in ranks:
        assert fit.speedup(count) == pytest.approx(law_of(law, serial, count), rel=1e-5)


@pytest.mark.parametrize("law", ["Amdahl", "Gustafson"])
@pytest.mark.parametrize("serial", [0.02, 0.3])
def test_a_fit_and_its_interval_are_scipys_curve_fit(law: Law, serial: float) -> None:
    """curve_fit goes the other way about: by iterating, on (rate, s) themselves, with errors over the fitted rate."""
    measured = noisy(law, serial, seed=5)
    fit = fit_law(law, measured)
    assert fit is not None
    ranks, found = np.array([(count, rate) for count, some in measured.items() for rate in some]).T

    def relative(_: object, rate: float, fraction: float) -> object:
        ideal = rate * np.array([law_of(law, fraction, int(count)) for count in ranks])
        return found / ideal if law == "Amdahl" else ideal / found

    values, covariance = optimize.curve_fit(relative, ranks, np.ones(len(ranks)), p0=(400, 0.1))
    assert (fit.rate, fit.serial) == pytest.approx(tuple(values), rel=1e-5)
    half = stats.t.ppf(0.975, len(ranks) - 2) * math.sqrt(covariance[1, 1])
    assert (fit.low, fit.high) == pytest.approx((fit.serial - half, fit.serial + half), rel=2e-3, abs=1e-5)


@pytest.mark.parametrize("law", ["Amdahl", "Gustafson"])
def test_the_interval_holds_the_truth_as_often_as_it_says(law: Law) -> None:
    fits = [fit_law(law, noisy(law, 0.1, seed)) for seed in range(400)]
    held = sum(fit.low <= 0.1 <= fit.high for fit in fits if fit is not None)
    # 95 % of 400 are 380; a right interval holds fewer than 362 or more than 395 once in ten thousand times
    assert 362 <= held <= 395


def test_what_cannot_be_fitted_is_not() -> None:
    assert fit_law("Amdahl", {}) is None
    assert fit_law("Amdahl", {2: [100.0, 101.0]}) is None
    two = fit_law("Amdahl", {1: [100.0], 2: [180.0]})
    assert two is not None
    assert math.isnan(two.low), "a line through two points has no interval"
    assert two.serial == pytest.approx(karp_flatt(1.8, 2))


def test_what_limits_a_speedup() -> None:
    fit = fit_law("Amdahl", {1: [100.0], 2: [160.0]})
    assert fit is not None
    assert fit.serial == pytest.approx(0.25)
    assert fit.limit == pytest.approx(4)
    weak = fit_law("Gustafson", {1: [100.0], 2: [160.0]})
    assert weak is not None
    assert math.isinf(weak.limit)


def test_students_t_is_scipys() -> None:
    for freedom in [*range(1, 60), 1000]:
        assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=2e-4)
