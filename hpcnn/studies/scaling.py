"""What a scaling study says of measured rates: speed-up and efficiency with their spread, and laws fitted to them.

S is the speed-up on R ranks, a rate (rows a second) over the rate of one rank; efficiency is S / R.

    Amdahl (1967), work of one size:         1 / S = s + (1 - s) / R
    Gustafson (1988), work that grows as R:      S = s + (1 - s) R
    Karp and Flatt (1990), of one S:             e = (1 / S - 1 / R) / (1 - 1 / R)

Both laws are straight lines, of the time a row takes over 1 / R and of the rate over R; s is a line's constant part
over the whole of it at R = 1. So one least squares fits both, and the rate of one rank is fitted too, not believed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rates = Mapping[int, Sequence[float]]
"""Rows a second of each repeat, by number of ranks."""
Law = Literal["Amdahl", "Gustafson"]

_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
_NORMAL = 1.959964


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of `count` values; all nan of none."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float] | NDArray[np.float64]) -> Spread:
    """Quartiles by linear interpolation. Values that are nan are not counted."""
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return Spread(math.nan, math.nan, math.nan, 0)
    low, median, high = (float(one) for one in np.quantile(known, [0.25, 0.5, 0.75]))
    return Spread(median, low, high, len(known))


def speedups(rates: Sequence[float], base: Sequence[float], base_ranks: int = 1) -> NDArray[np.float64]:
    """Of each repeat over each repeat at the base, so that the scatter of both shows. A base of several ranks counts as
    scaling ideally up to there."""
    return base_ranks * np.divide.outer(np.asarray(rates, np.float64), np.asarray(base, np.float64)).ravel()


def karp_flatt(speedup: float, ranks: int) -> float:
    """The serial fraction that alone would explain one speed-up; nan on one rank. Below 0: faster than ideal."""
    return (1 / speedup - 1 / ranks) / (1 - 1 / ranks) if ranks > 1 and speedup > 0 else math.nan


def scaled_fraction(speedup: float, ranks: int) -> float:
    """The same where work grows with the ranks: Gustafson's law solved for s."""
    return (ranks - speedup) / (ranks - 1) if ranks > 1 else math.nan


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A law fitted to `points` runs. `serial`: the fraction s, with its 95 % interval (nan where two points fix the
    line). `rate`: fitted rows a second of one rank."""

    law: Law
    serial: float
    low: float
    high: float
    rate: float
    points: int

    def speedup(self, ranks: float) -> float:
        if self.law == "Amdahl":
            return 1 / (self.serial + (1 - self.serial) / ranks)
        return self.serial + (1 - self.serial) * ranks

    @property
    def limit(self) -> float:
        """The speed-up that no number of ranks exceeds: by Amdahl 1 / s, none (infinite) by Gustafson."""
        return 1 / self.serial if self.law == "Amdahl" and self.serial > 0 else math.inf


def fit_law(law: Law, rates: Rates) -> Fit | None:
    """Least squares of relative errors, since repeats of a rate scatter in proportion to it; None with fewer than two
    numbers of ranks. The interval is the delta method's: of s = a / (a + b), with Student's t."""
    pairs = [(ranks, rate) for ranks, repeats in sorted(rates.items()) for rate in repeats if rate > 0]
    if len({ranks for ranks, _ in pairs}) < 2:
        return None
    ranks, rate = np.array(pairs, dtype=np.float64).T
    # 1 / rate = a + b / R, and rate = a + b R, each over its left side
    lines = (np.stack([rate, rate / ranks]) if law == "Amdahl" else np.stack([1 / rate, ranks / rate])).T
    scale = np.abs(lines).max()
    lines = lines / scale
    (a, b), *_ = np.linalg.lstsq(lines, np.ones(len(pairs)), rcond=None)
    total = a + b
    serial = float(a / total)
    within = _half_width(lines, np.array([a, b]), np.array([b, -a]) / total**2)
    return Fit(
        law=law,
        serial=serial,
        low=serial - within,
        high=serial + within,
        rate=float(scale / total if law == "Amdahl" else total / scale),
        points=len(pairs),
    )


def _half_width(lines: NDArray[np.float64], found: NDArray[np.float64], slope: NDArray[np.float64]) -> float:
    freedom = len(lines) - 2
    if freedom < 1:
        return math.nan
    left = 1 - lines @ found
    covariance = np.linalg.inv(lines.T @ lines) * float(left @ left) / freedom
    return t_quantile(freedom) * math.sqrt(max(float(slope @ covariance @ slope), 0.0))


def t_quantile(freedom: int) -> float:
    """Student's t that holds 95 % between -t and t: a table, from 11 on its expansion about the normal one (Abramowitz
    and Stegun, 26.7.5), right to 2e-4."""
    if freedom <= len(_QUANTILES):
        return _QUANTILES[freedom - 1]
    z, n = _NORMAL, float(freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3
