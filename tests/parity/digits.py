"""The parity tests' problem: real digits, a network of the zoo, dropout on, and a backend that takes its steps."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn.data.dataset import Dataset, load_dataset
from hpcnn.data.normalise import fit_normalisation
from hpcnn.data.order import BatchOrder
from hpcnn.network import Architecture, get_network, initial_weights, segment_masks
from hpcnn.parallel.executor import Executor
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.optimizers import Optimizer
from hpcnn.parallel.parts import FlatVectors, Links, LocalBatch, Part
from hpcnn.parallel.strategies import make_program
from hpcnn.records.phases import PhaseClock
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.registry import open_backend
from tests.parity.kinks import CLEAR, margins

Array = Any
TRAIN = Path(__file__).resolve().parents[2] / "data" / "train.csv"


@cache
def digits() -> Dataset:
    return load_dataset(TRAIN)


def start(name: str, seed: int, bias: float) -> tuple[Architecture, Array]:
    """A network of the zoo and its initial weights, every bias `bias`."""
    data = digits()
    assert data.classes == 10
    architecture = get_network(name, data.input_shape, data.classes)
    weights = initial_weights(architecture, seed)
    for parameter in architecture.parameters:
        if parameter.role == "bias":
            parameter.view(weights)[:] = bias
    return architecture, weights


def batches(architecture: Architecture, size: int, seed: int) -> Iterator[LocalBatch]:
    """Global batches in the order of the first epoch, with their masks, as a run in one process computes them."""
    data = digits()
    order = BatchOrder(data.rows, data.logical_shards, size, 0.0, seed)
    normalisation = fit_normalisation("scale", data, order)
    for step in range(order.steps_per_epoch):
        rows = order.rows(1, step, data.shards)
        masks = segment_masks(architecture.whole, seed, 1, rows)
        yield LocalBatch(data.batch(rows, normalisation), data.take_labels(rows), masks, len(rows))


def clear_of_kinks(batch: LocalBatch, architecture: Architecture, weights: Array) -> LocalBatch:
    """The batch without the rows whose gradient float32 cannot tell; most are left."""
    clear = margins(architecture, weights, batch.x, batch.masks) > CLEAR
    count = np.count_nonzero(clear)
    assert count > len(clear) / 3
    return LocalBatch(batch.x[clear], batch.labels[clear], [mask[clear] for mask in batch.masks], int(count))


@cache
def _model_of(backend: str, architecture: Architecture) -> tuple[SegmentModel, FlatVectors]:
    """One for all that ask, one after the other: some backends compile for seconds."""
    vectors = FlatVectors(architecture.whole)
    return open_backend(backend)(architecture.whole, vectors.weights, vectors.gradient), vectors


def executor_of(
    backend: str, architecture: Architecture, weights: Array, optimizer: Optimizer
) -> tuple[Executor, FlatVectors]:
    """A backend about to train in one process, and the vectors that it works on, which are the next one's too."""
    model, vectors = _model_of(backend, architecture)
    vectors.weights[:] = weights
    program = make_program("single", Grid(dp=1), 0, 1)
    return Executor(program, {0: Part(model, vectors, optimizer)}, PhaseClock(begin=0.0), Links(None)), vectors


def relative_errors(architecture: Architecture, actual: Array, expected: Array) -> dict[str, float]:
    """Of each tensor: norm of the difference over norm of the expected one, in float64."""
    difference = actual.astype(np.float64) - expected
    return {
        p.name: float(np.linalg.norm(p.view(difference)) / np.linalg.norm(p.view(expected)))
        for p in architecture.parameters
    }
