"""What ranks hold in parts, in one piece in the canonical layout: checkpoints are equal however a network was cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcnn.training.prepare import Prepared

Array = NDArray[np.float32]


@dataclass(frozen=True)
class WholeVectors:
    """Weights, and the optimizer's state by name: float32[architecture.size] each."""

    weights: Array
    state: dict[str, Array]
    updates: int


def gathered_vectors(prepared: Prepared) -> WholeVectors | None:
    """Collective over the stages of a replica: the whole on its first stage, None on the others.

    Where one rank holds all in one segment, it is that rank's own vectors."""
    parts, stages = prepared.parts, prepared.links.stages
    if stages is None and len(parts) == 1:
        (part,) = parts.values()
        return WholeVectors(part.vectors.weights, part.optimizer.state, part.optimizer.updates)
    mine = [(part.segment.offset, part.vectors.weights, part.optimizer.state) for part in parts.values()]
    found = [mine] if stages is None else stages.gather(mine)
    if found is None:
        return None
    updates, names = next((part.optimizer.updates, part.optimizer.names) for part in parts.values())
    size = prepared.architecture.size
    whole = WholeVectors(np.empty(size, np.float32), {name: np.empty(size, np.float32) for name in names}, updates)
    for offset, weights, state in (piece for pieces in found for piece in pieces):
        own = slice(offset, offset + weights.size)
        whole.weights[own] = weights
        for name, vector in state.items():
            whole.state[name][own] = vector
    return whole
