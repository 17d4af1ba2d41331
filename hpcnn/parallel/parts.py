"""What an executor works on: a rank's segments with their vectors, its rows of a batch, and its ways to other ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.data.dataset import aligned_empty
from hpcnn.network.architecture import Segment
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.messages import Messages
from hpcnn.parallel.optimizers import Optimizer
from hpcnn.parallel.reducers import STATISTICS, Reducer
from hpcnn.wrappers.contract import Array, SegmentModel


class FlatVectors:
    """Weights and gradient of a segment, aligned; `message` is the gradient and the step's statistics behind it.

    Collective over the replicas where `reducer` is what adds the message."""

    def __init__(self, segment: Segment, reducer: Reducer | None = None) -> None:
        size = segment.size + STATISTICS
        self.weights: Array = aligned_empty((segment.size,))
        self.message: Array = aligned_empty((size,)) if reducer is None else reducer.allocate(size)
        self.gradient: Array = self.message[: segment.size]
        self.statistics: Array = self.message[segment.size :]


@dataclass(frozen=True)
class Part:
    """A segment as a rank holds it."""

    model: SegmentModel
    vectors: FlatVectors
    optimizer: Optimizer

    @property
    def segment(self) -> Segment:
        return self.model.segment


@dataclass(frozen=True)
class LocalBatch:
    """A rank's rows of one global batch of `global_rows` rows. `masks`: of all its segments' dropouts, in order.

    `x` is looked at where the first segment is, `labels` where the last one is; their number is that of the rows."""

    x: Array
    labels: NDArray[np.int64]
    masks: Sequence[Array]
    global_rows: int

    def piece(self, micro_batch: int, micro_batches: int) -> LocalBatch:
        """Micro-batch `micro_batch` of `micro_batches`: consecutive rows, equal up to one, maybe none."""
        rows = len(self.labels)
        place = slice(rows * micro_batch // micro_batches, rows * (micro_batch + 1) // micro_batches)
        return LocalBatch(self.x[place], self.labels[place], [mask[place] for mask in self.masks], self.global_rows)


Divisor = Callable[[LocalBatch], float]


def global_rows(batch: LocalBatch) -> float:
    """What the loss head divides by: rows of the whole global batch, whatever this rank holds of it."""
    return float(batch.global_rows)


@dataclass(frozen=True)
class StepResult:
    """Means over the global batch, equal on all ranks. `gradient_norm` is measured where it was asked for, else nan."""

    loss: float
    accuracy: float
    gradient_norm: float


@dataclass(frozen=True)
class Links:
    """A rank's communicators. `replicas`: the ranks that hold the same segments. `stages`: those of its replica, rank =
    stage, None where there is one; `messages` go between them. `reducer`: adds over `replicas`, where there are any."""

    replicas: Any
    stages: Any = None
    messages: Messages | None = None
    reducer: Reducer | None = None
    group: str = "all"
    """Names the replicas of this stage among all ranks' collectives."""
    line: str = "all"
    """Names the stages of this replica."""


def make_links(comm: Any, grid: Grid) -> Links:
    """Collective. Messages get a communicator of their own, so that nothing else can take them."""
    if grid.pp == 1:
        return Links(comm)
    replica, stage, _ = grid.place(comm.rank)
    stages = comm.Split(replica, stage)
    return Links(
        replicas=comm.Split(stage, replica),
        stages=stages,
        messages=Messages(stages.Dup()),
        group=f"replicas of stage {stage}",
        line=f"stages of replica {replica}",
    )
