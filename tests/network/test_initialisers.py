from __future__ import annotations

import numpy as np
import pytest

from hpcnn.errors import NetworkError
from hpcnn.network.counter import Purpose
from hpcnn.network.initialisers import INITIALISERS, canonical_initialiser, standard_normal

STREAM = (Purpose.INITIAL_WEIGHTS, 0, 0)
COUNT = 200_000
FAN_IN, FAN_OUT = 50, 30
VARIANCES = {"lecun": 1 / FAN_IN, "he": 2 / FAN_IN, "glorot": 2 / (FAN_IN + FAN_OUT)}


@pytest.mark.parametrize("name", INITIALISERS)
def test_mean_and_variance_are_the_papers(name: str) -> None:
    draws = INITIALISERS[name].draw(0, STREAM, COUNT, fan_in=FAN_IN, fan_out=FAN_OUT)
    family, distribution = name.split("_")
    variance = VARIANCES[family]
    # Five standard deviations: of the mean sqrt(v / n), of the sample variance v sqrt((kurtosis - 1) / n).
    kurtosis = {"uniform": 1.8, "normal": 3.0}[distribution]
    assert abs(draws.mean()) < 5 * np.sqrt(variance / COUNT)
    assert abs(draws.var() - variance) < 5 * variance * np.sqrt((kurtosis - 1) / COUNT)


@pytest.mark.parametrize("family", VARIANCES)
def test_uniform_draws_fill_their_interval_and_no_more(family: str) -> None:
    draws = INITIALISERS[f"{family}_uniform"].draw(0, STREAM, COUNT, fan_in=FAN_IN, fan_out=FAN_OUT)
    limit = np.sqrt(3 * VARIANCES[family])
    assert np.abs(draws).max() <= limit * (1 + 1e-15)
    # All n draws miss an outer thousandth of each end with probability 2 (1 - 1/2000)^n < 1e-40.
    assert draws.max() > 0.999 * limit
    assert draws.min() < -0.999 * limit


@pytest.mark.parametrize(("reach", "inside"), [(1, 0.682689), (2, 0.954500), (3, 0.997300)])
def test_normal_draws_follow_the_normal_distribution(reach: int, inside: float) -> None:
    draws = standard_normal(1, STREAM, COUNT)
    deviation = np.sqrt(inside * (1 - inside) / COUNT)
    assert abs((np.abs(draws) < reach).mean() - inside) < 5 * deviation
    assert abs((draws < reach).mean() - (1 + inside) / 2) < 5 * deviation


def test_normal_pairs_are_uncorrelated_and_a_prefix_stays_a_prefix() -> None:
    draws = standard_normal(1, STREAM, COUNT)
    # The mean of n / 2 products of independent standard normals has standard deviation sqrt(2 / n).
    assert abs((draws[0::2] * draws[1::2]).mean()) < 5 * np.sqrt(2 / COUNT)
    assert standard_normal(1, STREAM, 7).tolist() == draws[:7].tolist()


def test_an_unknown_initialiser_lists_the_choices() -> None:
    with pytest.raises(
        NetworkError, match=r"initialiser 'ones' is unknown; choose one of lecun_uniform, .*glorot_normal"
    ):
        canonical_initialiser("ones")
    assert [canonical_initialiser(name) for name in ("lecun", "he", "glorot")] == [
        "lecun_uniform",
        "he_uniform",
        "glorot_uniform",
    ]
