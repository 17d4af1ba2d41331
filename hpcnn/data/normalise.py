"""Scaling of raw values, from sums over the training rows that do not depend on how many ranks added them.

Each logical shard's sum is made on one rank, always over the same pieces of rows in the same order, and the shards'
sums are added in shard order. On whole numbers the sums are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.agree import Communicator, communicator
from hpcnn.errors import ConfigError

if TYPE_CHECKING:
    from hpcnn.data.dataset import Dataset
    from hpcnn.data.order import BatchOrder

ROWS_AT_ONCE = 512
Channels = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Normalisation:
    """x = (raw - shift) * scale, in float32; shift and scale: float32[channels]."""

    shift: NDArray[np.float32]
    scale: NDArray[np.float32]


def no_normalisation(channels: int) -> Normalisation:
    return Normalisation(np.zeros(channels, np.float32), np.ones(channels, np.float32))


def _none(dataset: Dataset, order: BatchOrder, comm: Communicator) -> Normalisation:
    return no_normalisation(dataset.input_shape[0])


def _scale(dataset: Dataset, order: BatchOrder, comm: Communicator) -> Normalisation:
    """Divide by the largest training value (in magnitude): pixels get from 0 to 1."""
    largest = float(_shard_values(dataset, order, comm, np.max, np.abs).max())
    channels = dataset.input_shape[0]
    return Normalisation(np.zeros(channels, np.float32), np.full(channels, _inverse(largest), np.float32))


def _standard(dataset: Dataset, order: BatchOrder, comm: Communicator) -> Normalisation:
    """Subtract each channel's mean over the training rows and divide by its standard deviation."""
    _, height, width = dataset.input_shape
    values = order.training_rows * height * width
    mean = _in_order(_shard_values(dataset, order, comm, np.sum, lambda x: x)) / values
    centre = mean[:, None, None]
    variance = _in_order(_shard_values(dataset, order, comm, np.sum, lambda x: (x - centre) ** 2)) / values
    return Normalisation(mean.astype(np.float32), np.array([_inverse(v) for v in np.sqrt(variance)], np.float32))


NORMALISATIONS: dict[str, Callable[[Dataset, BatchOrder, Communicator], Normalisation]] = {
    "none": _none,
    "scale": _scale,
    "standard": _standard,
}


def fit_normalisation(
    kind: str, dataset: Dataset, order: BatchOrder, comm: Communicator | None = None
) -> Normalisation:
    """Collective: the normalisation of a kind (none, scale, standard) over the training rows of all ranks."""
    if kind not in NORMALISATIONS:
        raise ConfigError(f"normalisation {kind!r} is unknown; choose from {', '.join(NORMALISATIONS)}")
    return NORMALISATIONS[kind](dataset, order, communicator(comm))


def _shard_values(
    dataset: Dataset,
    order: BatchOrder,
    comm: Communicator,
    reduce: Callable[..., Any],
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> Channels:
    """float64 (pieces, channels): `reduce` of `function` over each piece of training rows, in shard order."""
    own = []
    for shard in dataset.shards:
        rows = order.shard_training_rows(shard) - dataset.first_row
        for first in range(0, len(rows), ROWS_AT_ONCE):
            raw = dataset.features[rows[first : first + ROWS_AT_ONCE]].astype(np.float64)
            own.append(reduce(function(raw), axis=(0, 2, 3)))
    return np.array([piece for rank in comm.allgather(own) for piece in rank])


def _in_order(pieces: Channels) -> Channels:
    """The sum over pieces, one after another (np.sum would pair them by their number)."""
    total = np.zeros(pieces.shape[1])
    for piece in pieces:
        total += piece
    return total


def _inverse(value: float) -> float:
    """1 / value; constant data (0) is left as it is."""
    return 1 / value if value > 0 else 1.0
