"""Initial weights: a function of (architecture, seed), the same for every backend and every cut into segments.

Each tensor draws from its own stream, named by its layer's position, so a segment makes its own slice alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hpcnn.network.architecture import Architecture, Segment
from hpcnn.network.counter import Purpose
from hpcnn.network.initialisers import INITIALISERS
from hpcnn.network.parameters import Parameter


def initial_weights(architecture: Architecture, seed: int) -> NDArray[np.float32]:
    """The whole network's flat vector, float32[architecture.size]."""
    return segment_weights(architecture.whole, seed)


def segment_weights(segment: Segment, seed: int) -> NDArray[np.float32]:
    """A segment's slice of it, float32[segment.size], made without the rest."""
    weights = np.empty(segment.size, dtype=np.float32)
    for parameter in segment.parameters:
        weights[parameter.span] = _tensor(parameter, seed)
    return weights


def _tensor(parameter: Parameter, seed: int) -> NDArray[np.float64] | float:
    if parameter.initialiser is None:
        return parameter.constant
    stream = (Purpose.INITIAL_WEIGHTS, parameter.layer_index, parameter.draw)
    fans = {"fan_in": parameter.fan_in, "fan_out": parameter.fan_out}
    return INITIALISERS[parameter.initialiser].draw(seed, stream, parameter.size, **fans)
