"""A recorder around a real wrapper, so that what an executor asks of a wrapper can be read, and one rank's step
on a network so small that what float32 may do to it can be written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpcnn.config import DEFAULT_BACKEND
from hpcnn.network import Architecture, Dense, Dropout, Flatten, Softmax, initial_weights
from hpcnn.parallel.executor import Executor
from hpcnn.parallel.inject import injected_divisor
from hpcnn.parallel.optimizers import SGD
from hpcnn.parallel.parts import Divisor, FlatVectors, Links, LocalBatch, Part, StepResult, global_rows
from hpcnn.parallel.program import parse_program
from hpcnn.parallel.reducers import make_reducer
from hpcnn.records.phases import PhaseClock
from hpcnn.wrappers.contract import LossResult
from hpcnn.wrappers.registry import open_backend
from tests.parity.numpy_reference import Reference

Array = Any

NETWORK = Architecture("small", (1, 2, 2), (Flatten(), Dropout(rate=0.5), Dense(units=3), Softmax()))
START = initial_weights(NETWORK, 3)

ROW_NOISE = 150 * 2**-24
"""What float32 may do, at worst, to a row's share of a sum over at most 8 rows and 4 ranks, before the division.

In units of 2**-24: a logit has four products of magnitudes below 4 in all and five roundings, 20. Its log-softmax comes
from two of them and two roundings of numbers below 8, 56. A row's loss, below 4, has that and 12 additions, 104. Its
slope by a logit is off by 58, by the kernel (pixel times mask is at most 2) by 116; 12 additions and two roundings in
the division, of shares below 2, add 28: 144. Each of the rows 0 to 7 has a share above 0.6.
"""


class Recorder:
    """The calls that a step of a whole network makes, noted and passed on; any other is an AttributeError.

    `fuses_loss`: whether a forward and its loss are one call, as a backend says of itself."""

    def __init__(self, vectors: FlatVectors, network: Architecture, fuses_loss: bool) -> None:
        self.model = open_backend(DEFAULT_BACKEND)(network.whole, vectors.weights, vectors.gradient)
        self.segment = network.whole
        self.capabilities = replace(self.model.capabilities, fuses_loss=fuses_loss)
        self._noted: list[tuple[Any, ...]] = []

    @property
    def calls(self) -> list[tuple[Any, ...]]:
        """("forward", slot, numbers of the rows), ("loss", slot, labels, divisor) and ("both", labels, divisor)."""
        return [
            (
                name,
                *(
                    (16 * one[:, 0, 0, 0] if name == "forward" else one).tolist() if np.ndim(one) else one
                    for one in rest
                ),
            )
            for name, *rest in self._noted
        ]

    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        self._noted.append(("forward", slot, x))
        return self.model.forward(slot, x, masks)

    def loss_backward(self, slot: int, labels: Array, divisor: float) -> LossResult:
        self._noted.append(("loss", slot, labels, divisor))
        return self.model.loss_backward(slot, labels, divisor)

    def forward_loss_backward(self, x: Array, masks: Sequence[Array], labels: Array, divisor: float) -> LossResult:
        self._noted.append(("both", labels, divisor))
        return self.model.forward_loss_backward(x, masks, labels, divisor)


def batch_of(rows: int, global_row_count: int, first: int = 0) -> LocalBatch:
    """Rows `first` and following; the first pixel of a row is its number / 16."""
    number = first + np.arange(rows)
    place = 4 * number[:, np.newaxis] + np.arange(4)
    x = (place % 5 / 4).astype(np.float32).reshape(rows, 1, 2, 2)
    x[:, 0, 0, 0] = number / 16
    return LocalBatch(x, number % 3, [(place % 3 > 0) * np.float32(2)], global_row_count)


def parts_of(counts: Sequence[int]) -> list[LocalBatch]:
    """The rows of `batch_of(sum(counts), sum(counts))`, as many on each rank as `counts` says."""
    return [batch_of(rows, sum(counts), sum(counts[:rank])) for rank, rows in enumerate(counts)]


def assert_is_the_sum_over(batch: LocalBatch, message: Array) -> None:
    """Gradient and statistics of all rows of `batch` at the weights `START`, as float64 adds them up."""
    reference, rows = Reference(NETWORK, START), len(batch.labels)
    loss, gradient, _ = reference.loss_and_gradient(batch.x, batch.labels, batch.masks, batch.global_rows)
    correct = np.count_nonzero(reference.logits(batch.x, batch.masks).argmax(axis=1) == batch.labels)
    assert np.abs(message[:-2] - gradient).max() <= ROW_NOISE * rows / batch.global_rows
    assert abs(message[-2] - loss) <= ROW_NOISE * rows
    assert message[-1] == correct


class Rank:
    """An executor over a recorder, with all its parts within reach."""

    def __init__(
        self,
        program: str,
        *,
        comm: Any = None,
        divisor: Divisor = global_rows,
        measure_norm: bool = True,
        network: Architecture = NETWORK,
        fuses_loss: bool = False,
    ) -> None:
        reducer = None if comm is None else make_reducer("plain", comm, world=comm, backend="torch")
        self.vectors = FlatVectors(network.whole)
        self.vectors.weights[:] = initial_weights(network, 3)
        self.vectors.message.fill(np.nan)  # whatever memory held before
        self.model = Recorder(self.vectors, network, fuses_loss)
        self.clock = PhaseClock()
        self.optimizer = SGD(network.size)
        self.executor = Executor(
            parse_program(program), {0: Part(self.model, self.vectors, self.optimizer)}, self.clock,  # type: ignore[arg-type]
            Links(comm, reducer=reducer),
            divisor=divisor, measure_norm=measure_norm,
        )  # fmt: skip


@dataclass(frozen=True)
class Step:
    """What a step has asked of a rank's wrapper, what it has returned, and what it has left in the rank's vectors."""

    calls: list[tuple[Any, ...]]
    result: StepResult
    message: Array
    weights: Array
    updates: int


def step_on_rank(comm: Any, parts: Sequence[LocalBatch], rate: float, fault: str | None = None) -> Step:
    """For `on_ranks`: a step of two micro-batches; each rank has its own of `parts`."""
    rank = Rank("F0.0 L0.0 F0.1 L0.1 R0 U0", comm=comm, divisor=injected_divisor(fault, comm.size))
    result = rank.executor.step(parts[comm.rank], rate)
    return Step(rank.model.calls, result, rank.vectors.message, rank.vectors.weights, rank.optimizer.updates)
