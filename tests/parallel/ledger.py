"""A model that keeps a record instead of computing, so that what an executor asks of a wrapper can be read.

Its loss of a row is the sum of its pixels, its gradient the row's mean position times its label; both are whole numbers
in the tests, so that sums over any cut of the rows are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hpcnn.network import Architecture, Dense, Dropout, Flatten, Softmax
from hpcnn.parallel.executor import Divisor, Executor, FlatVectors, LocalBatch, global_rows
from hpcnn.parallel.optimizers import SGD
from hpcnn.parallel.program import parse_program
from hpcnn.records.phases import PhaseClock
from hpcnn.wrappers.contract import Array, Capabilities, LossResult, SegmentModel

NETWORK = Architecture("ledger", (1, 2, 2), (Flatten(), Dropout(rate=0.5), Dense(units=3), Softmax()))


class Ledger(SegmentModel):
    """Adds rows' pixels x masks, over the divisor, to the first four numbers of the gradient; notes every call."""

    capabilities: ClassVar[Capabilities] = Capabilities(weights_are_views=True)
    correct_a_row: int = 1

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: list[tuple[Any, ...]] = []
        self.slots: dict[int, tuple[Array, Array]] = {}

    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        self.calls.append(("forward", slot, x[:, 0, 0, 0].tolist()))
        (mask,) = masks
        self.slots[slot] = x, mask
        return np.zeros((len(x), 3), np.float32)

    def backward(self, slot: int, output_gradient: Array) -> Array | None:
        raise AssertionError("the whole network has a loss and no backward of its own")

    def loss_backward(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        self.calls.append(("loss", slot, labels.tolist(), divisor))
        x, mask = self.slots.pop(slot)
        self.gradient[:4] += ((x.reshape(-1, 4) * mask) * labels[:, None]).sum(axis=0) / np.float32(divisor)
        return LossResult(float(x.sum()), self.correct_a_row * len(labels), None)

    def infer(self, x: Array) -> Array:
        raise AssertionError("a step does not infer")

    def describe(self) -> dict[str, Any]:
        return {}


def whole_rows(rows: int, global_row_count: int, first: int = 0) -> LocalBatch:
    """Rows of small whole numbers; the first pixel of a row is its number."""
    x = np.arange(4 * rows, dtype=np.float32).reshape(rows, 1, 2, 2) % 5
    x[:, 0, 0, 0] = first + np.arange(rows)
    masks = [(np.arange(4 * rows, dtype=np.float32).reshape(rows, 4) % 3 > 0) * np.float32(2)]
    return LocalBatch(x, 1 + np.arange(rows) % 3, masks, global_row_count)


def joined(batches: Sequence[LocalBatch]) -> LocalBatch:
    """The ranks' rows as one process holds them."""
    return LocalBatch(
        np.concatenate([batch.x for batch in batches]),
        np.concatenate([batch.labels for batch in batches]),
        [np.concatenate([batch.masks[0] for batch in batches])],
        batches[0].global_rows,
    )


class Rank:
    """An executor over a ledger, with all its parts within reach."""

    def __init__(
        self, program: str, *, comm: Any = None, divisor: Divisor = global_rows, measure_norm: bool = True
    ) -> None:
        self.vectors = FlatVectors(NETWORK.whole)
        self.vectors.weights.fill(0.0)
        self.vectors.message.fill(np.nan)  # whatever memory held before
        self.model = Ledger(NETWORK.whole, self.vectors.weights, self.vectors.gradient)
        self.clock = PhaseClock()
        self.optimizer = SGD(NETWORK.size)
        self.executor = Executor(
            parse_program(program), self.model, self.vectors, self.optimizer, self.clock, comm,
            divisor=divisor, measure_norm=measure_norm,
        )  # fmt: skip
