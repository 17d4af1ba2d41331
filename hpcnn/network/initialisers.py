"""Initialisers by the name the literature gives them, written here so that every backend starts from the same numbers.

All are variance scaling: variance = gain / fan. Normal ones are not truncated. LeCun: "Efficient backprop", 1998;
Glorot and Bengio, AISTATS 2010; He et al., ICCV 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hpcnn.errors import NetworkError
from hpcnn.network.counter import uniform


@dataclass(frozen=True, kw_only=True)
class Initialiser:
    distribution: Literal["uniform", "normal"]
    gain: float
    fan: Literal["in", "average"]

    def standard_deviation(self, fan_in: int, fan_out: int) -> float:
        fan = fan_in if self.fan == "in" else (fan_in + fan_out) / 2
        return sqrt(self.gain / fan)

    def draw(
        self, seed: int, stream: tuple[int, int, int], count: int, *, fan_in: int, fan_out: int
    ) -> NDArray[np.float64]:
        """float64[count] from the stream."""
        deviation = self.standard_deviation(fan_in, fan_out)
        if self.distribution == "normal":
            return deviation * standard_normal(seed, stream, count)
        return sqrt(3) * deviation * (2 * uniform(seed, stream, count) - 1)


INITIALISERS: dict[str, Initialiser] = {
    "lecun_uniform": Initialiser(distribution="uniform", gain=1, fan="in"),
    "lecun_normal": Initialiser(distribution="normal", gain=1, fan="in"),
    "he_uniform": Initialiser(distribution="uniform", gain=2, fan="in"),
    "he_normal": Initialiser(distribution="normal", gain=2, fan="in"),
    "glorot_uniform": Initialiser(distribution="uniform", gain=1, fan="average"),
    "glorot_normal": Initialiser(distribution="normal", gain=1, fan="average"),
}
ALIASES = {"lecun": "lecun_uniform", "he": "he_uniform", "glorot": "glorot_uniform"}


def canonical_initialiser(name: object) -> str:
    """The full name ("he" is "he_uniform"); NetworkError that lists the choices for an unknown one."""
    full = ALIASES.get(name, name) if isinstance(name, str) else ""
    if full not in INITIALISERS:
        raise NetworkError(f"initialiser {name!r} is unknown; choose one of {', '.join(INITIALISERS)}")
    return full


def standard_normal(seed: int, stream: tuple[int, int, int], count: int) -> NDArray[np.float64]:
    """float64[count] by Box and Muller (1958) from pairs of uniform numbers.

    Logarithm and cosine may differ in the last bit of float64 between builds of NumPy; float32 hides nearly all of it.
    """
    pairs = uniform(seed, stream, 2 * ceil(count / 2)).reshape(-1, 2)
    radius = np.sqrt(-2 * np.log1p(-pairs[:, 0]))
    angle = 2 * np.pi * pairs[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)[:count]
