"""Loss and accuracy over rows that no update uses, computed by all ranks, the same whatever their number.

Rows are evaluated shard by shard, so that what is computed together never depends on ranks; row losses come from
logits in float64; each shard's sum stands in its own place of a vector, and the places are added in shard order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.dataset import Dataset
from hpcnn.data.normalise import Normalisation
from hpcnn.data.shards import logical_shard_bounds
from hpcnn.records.phases import PhaseClock
from hpcnn.wrappers.contract import Array

ROWS_AT_ONCE = 256


class Network(Protocol):
    """What computes logits of rows: a segment that is a whole network, or the stages of a pipeline together."""

    def infer(self, x: Array) -> Array | None:
        """Logits; None on a rank that holds layers, but not the last one."""


@dataclass(frozen=True)
class Evaluation:
    """Means over all rows, None where the file has no labels; `predicted`: this rank's classes (of all, once
    they are `gathered`), in file order."""

    rows: int
    loss: float | None
    accuracy: float | None
    predicted: NDArray[np.int64] = field(repr=False)


@np.errstate(invalid="ignore")
def row_losses(logits: Array, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Softmax cross-entropy of each row, in float64, from the exponents' largest (so that none overflows).

    Of logits that are no numbers the loss is none either."""
    exact = logits.astype(np.float64)
    largest = exact.max(axis=1)
    total = np.log(np.exp(exact - largest[:, None]).sum(axis=1))
    losses: NDArray[np.float64] = total + largest - exact[np.arange(len(labels)), labels]
    return losses


def all_rows(dataset: Dataset) -> dict[int, NDArray[np.int64]]:
    """Every file row of each of this rank's shards."""
    bounds = logical_shard_bounds(dataset.rows, dataset.logical_shards)
    return {shard: np.arange(bounds[shard], bounds[shard + 1]) for shard in dataset.shards}


def gathered(found: Evaluation, comm: Any) -> Evaluation:
    """Collective: `found` with the classes of all ranks' rows, in file order."""
    return replace(found, predicted=np.concatenate(comm.allgather(found.predicted)))


def evaluate(
    network: Network,
    dataset: Dataset,
    normalisation: Normalisation,
    rows_of_shards: Mapping[int, NDArray[np.int64]],
    comm: Any,
    clock: PhaseClock,
) -> Evaluation:
    """Collective. `rows_of_shards`: file rows of each of this rank's shards."""
    sums = np.zeros((3, dataset.logical_shards), np.float64)  # row losses, rows right, rows
    predicted: list[NDArray[np.int64]] = []
    with clock.during("evaluate"):
        for shard, rows in sorted(rows_of_shards.items()):
            for start in range(0, len(rows), ROWS_AT_ONCE):
                some = rows[start : start + ROWS_AT_ONCE]
                logits = network.infer(dataset.batch(some, normalisation))
                if logits is None:
                    continue
                predicted.append(logits.argmax(axis=1))
                sums[2, shard] += len(some)
                if dataset.labels is not None:
                    labels = dataset.take_labels(some)
                    sums[0, shard] += row_losses(logits, labels).sum()
                    sums[1, shard] += np.count_nonzero(predicted[-1] == labels)
        if comm.size > 1:
            with clock.collective(sums.nbytes):
                # Each shard's place is one rank's, the others hold 0: adding in any order gives the same bits.
                sums = comm.allreduce(sums)
    count = int(sums[2].sum())
    loss = accuracy = None
    if dataset.labels is not None and count:
        loss, accuracy = sum(sums[0].tolist()) / count, float(sums[1].sum()) / count
    return Evaluation(count, loss, accuracy, np.concatenate([np.empty(0, np.int64), *predicted]))
