"""A framework's own parallelism on real ranks, apart from the rest of a training: steps with rows that we choose.

`fused_steps` runs on ranks that stay (tests.support.pool); TensorFlow starts once a process, so its ranks are started
for it: python -m tests.wrappers.fused_on_ranks BACKEND CSV OUT [OPTION=VALUE...], all cases in one start.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcnn.backend_options import backend_label
from hpcnn.data.dataset import aligned_empty
from hpcnn.network.architecture import Architecture, Segment
from hpcnn.network.initial import initial_weights
from hpcnn.network.masks import segment_masks
from hpcnn.network.zoo import find_network
from hpcnn.parallel.optimizers import SGD
from hpcnn.parallel.parts import FlatVectors
from hpcnn.reducer_options import resolve_reducer
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.fused import FusedStep, Piece, fused_class
from hpcnn.wrappers.registry import open_backend
from tests.mpi.digits import BATCH

SHARES = {
    "uneven": ((1, 2, 3, 4), (4, 1, 1, 2), (0, 1, 1, 1), (2, 2, 1, 1), (1, 0, 0, 0)),
    "first_without": ((0, 1, 2, 1), (1, 2, 3, 4), (1, 0, 1, 1), (3, 1, 2, 1), (1, 1, 1, 1)),
}
"""Of the rows of five steps, what ranks have, in proportion: some have none in some steps."""
CASES = tuple((shares, pieces) for shares in SHARES for pieces in (1, 3))
RATE = 0.05


@dataclass(frozen=True)
class FusedSteps:
    """`gradients` and losses of five steps, and weights behind them; `alike`: gradients the same bits on all ranks."""

    gradients: list[Any]
    weights: Any
    losses: list[float]
    correct: list[int]
    alike: bool
    facts: dict[str, Any]


class Digits:
    """Five global batches of real digits."""

    def __init__(self, csv: str) -> None:
        values = np.loadtxt(csv, np.float32, delimiter=",", skiprows=1, max_rows=5 * BATCH)
        self._x, self._labels = values[:, :-1].reshape(-1, 1, 28, 28) / np.float32(255), values[:, -1].astype(np.int64)
        self.architecture: Architecture = find_network("cnn2d_3layer_fullconnected_3layer").build((1, 28, 28), 10)

    def pieces(self, step: int, share: slice, count: int) -> list[Piece]:
        """Part `share` of the rows of a step, in `count` micro-batches, of which some may have no rows."""
        own = np.arange(step * BATCH, (step + 1) * BATCH)[share]
        found = []
        for place in range(count):
            rows = own[len(own) * place // count : len(own) * (place + 1) // count]
            x = aligned_empty((len(rows), 1, 28, 28))
            x[:] = self._x[rows]
            found.append(Piece(x, segment_masks(self.architecture.whole, 1, 1, rows), self._labels[rows]))
        return found


def model_of(backend: str, segment: Segment, options: dict[str, Any]) -> tuple[SegmentModel, FlatVectors]:
    """The network with its first weights."""
    vectors = FlatVectors(segment)
    vectors.weights[:] = initial_weights(segment.architecture, 1)
    return open_backend(backend, options, 1)(segment, vectors.weights, vectors.gradient), vectors


def place_of(rank: int, shares: tuple[int, ...]) -> slice:
    if len(shares) == 1:
        return slice(None)
    bounds = np.cumsum((0, *shares)) * BATCH // sum(shares)
    return slice(int(bounds[rank]), int(bounds[rank + 1]))


def fused_steps(
    comm: Any, csv: str, backend: str, shares: str, count: int, over: str | None = None, compile: bool = False,
    **native: Any,
) -> FusedSteps:  # fmt: skip
    """Collective. Five steps of the framework's own parallelism, in `count` micro-batches."""
    digits, options = Digits(csv), {"backend": over} if over else {"compile": True} if compile else {}
    step_class = fused_class(backend_label(backend, options))
    native_options = resolve_reducer("native", native)
    open_backend(backend, options, 1)
    step_class.set_process_up(comm, native_options)
    model, vectors = model_of(backend, digits.architecture.whole, options)
    fused = step_class(model, comm, native_options)
    try:
        return _steps(comm, digits, fused, vectors, shares, count)
    finally:
        fused.close()


def _steps(comm: Any, digits: Digits, fused: FusedStep, vectors: FlatVectors, shares: str, count: int) -> FusedSteps:
    optimizer = SGD(vectors.weights.size, momentum=0.9, nesterov=True)
    gradients, losses, correct = [], [], []
    for step in range(5):
        vectors.gradient.fill(np.nan)  # of which nothing may be left
        share = place_of(comm.rank, SHARES[shares][step][: comm.size])
        loss, right = fused.gradient(digits.pieces(step, share, count), float(BATCH))
        losses.append(comm.allreduce(loss))
        correct.append(comm.allreduce(right))
        gradients.append(vectors.gradient.copy())
        optimizer.update(vectors.weights, vectors.gradient, RATE)
    bits = b"".join(one.tobytes() for one in (*gradients, vectors.weights))
    alike = len(set(comm.allgather(bits))) == 1
    return FusedSteps(gradients, vectors.weights.copy(), losses, correct, alike, facts(fused))


def facts(fused: Any) -> dict[str, Any]:
    """What tells that it was the framework's own that added."""
    found = {"described": fused.describe()}
    if hasattr(fused, "ddp"):
        found["class"] = f"{type(fused.ddp).__module__}.{type(fused.ddp).__name__}"
        found["logged"] = dict(fused.ddp._get_ddp_logging_data())
    else:
        found["class"] = f"{type(fused.strategy).__module__}.{type(fused.strategy).__name__}"
        found["replicas"] = fused.strategy.num_replicas_in_sync
    return found


def one_process(csv: str, backend: str, over: str | None = None) -> FusedSteps:
    """The same without anything that adds."""
    digits = Digits(csv)
    model, vectors = model_of(backend, digits.architecture.whole, {"backend": over} if over else {})
    optimizer = SGD(vectors.weights.size, momentum=0.9, nesterov=True)
    gradients, losses, correct = [], [], []
    for step in range(5):
        vectors.gradient.fill(0.0)
        (piece,) = digits.pieces(step, slice(None), 1)
        found = model.forward_loss_backward(*piece, float(BATCH))
        losses.append(found.loss_sum)
        correct.append(found.correct)
        gradients.append(vectors.gradient.copy())
        optimizer.update(vectors.weights, vectors.gradient, RATE)
    return FusedSteps(gradients, vectors.weights.copy(), losses, correct, True, {})


def main(backend: str, csv: str, out: Path, *given: str) -> None:
    comm = MPI.COMM_WORLD
    options = dict(text.split("=") for text in given)
    found = {case: fused_steps(comm, csv, backend, *case, **options) for case in CASES}
    if comm.rank == 0:
        out.write_bytes(pickle.dumps((found, one_process(csv, backend, options.get("over")))))


if __name__ == "__main__":
    from tests.wrappers import fused_on_ranks  # as which pickle knows what is in it

    fused_on_ranks.main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
