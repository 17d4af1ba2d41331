"""Micro-batches: every row once, and on a real backend the same gradient whatever their number (rule 1)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.network import (
    Architecture,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    MaxPool2D,
    ReLU,
    Softmax,
    initial_weights,
    segment_masks,
)
from hpcnn.parallel.executor import Executor
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.optimizers import SGD
from hpcnn.parallel.parts import FlatVectors, Links, LocalBatch, Part
from hpcnn.parallel.strategies import make_program
from hpcnn.records.phases import PhaseClock
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.registry import open_backend
from tests.parallel.recorder import batch_of
from tests.wrappers.backends import EVERY_BACKEND


@given(st.integers(0, 40), st.integers(1, 50))
def test_pieces_are_all_rows_once_in_order_and_equal_up_to_one(rows: int, micro_batches: int) -> None:
    batch = batch_of(rows, global_row_count=rows + 3)
    pieces = [batch.piece(place, micro_batches) for place in range(micro_batches)]
    assert np.array_equal(np.concatenate([piece.x for piece in pieces]), batch.x)
    assert np.array_equal(np.concatenate([piece.labels for piece in pieces]), batch.labels)
    assert np.array_equal(np.concatenate([piece.masks[0] for piece in pieces]), batch.masks[0])
    sizes = {len(piece.labels) for piece in pieces}
    assert max(sizes) - min(sizes) <= 1
    assert all(len(piece.x) == len(piece.labels) == len(piece.masks[0]) for piece in pieces)
    assert {piece.global_rows for piece in pieces} == {rows + 3}


def test_pieces_are_views_that_a_wrapper_can_take_as_they_are() -> None:
    batch = batch_of(7, global_row_count=7)
    for place in range(3):
        piece = batch.piece(place, 3)
        for part, whole in ((piece.x, batch.x), (piece.masks[0], batch.masks[0]), (piece.labels, batch.labels)):
            assert np.shares_memory(part, whole)
            assert part.flags.c_contiguous


ROWS = 5
NETWORK = Architecture(
    "probe",
    (1, 9, 7),
    (
        Conv2D(filters=4, kernel=3, padding="same", bias=0.1),
        ReLU(),
        MaxPool2D(),
        Dropout(rate=0.3),
        Flatten(),
        Dense(units=8, bias=0.1),
        ReLU(),
        Dropout(rate=0.5),
        Dense(units=3),
        Softmax(),
    ),
)


@cache
def model_of(backend: str) -> tuple[SegmentModel, FlatVectors]:
    """One for all steps: some backends compile for seconds."""
    vectors = FlatVectors(NETWORK.whole)
    return open_backend(backend)(NETWORK.whole, vectors.weights, vectors.gradient), vectors


def step_of(backend: str, micro_batches: int) -> tuple[Any, Any]:
    """One step on the same rows: its result, and the gradient."""
    model, vectors = model_of(backend)
    vectors.weights[:] = initial_weights(NETWORK, 3)
    program = make_program("single", Grid(dp=1), 0, micro_batches)
    executor = Executor(program, {0: Part(model, vectors, SGD(NETWORK.size))}, PhaseClock(), Links(None))
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, *NETWORK.input_shape)).astype(np.float32)
    masks = segment_masks(NETWORK.whole, 3, 1, np.arange(ROWS))
    result = executor.step(LocalBatch(x, generator.integers(3, size=ROWS), masks, ROWS + 2), 0.1)
    return result, vectors.gradient.copy()


@EVERY_BACKEND
@pytest.mark.parametrize("micro_batches", range(1, 8))  # 6 and 7 are more than rows
def test_the_gradient_does_not_depend_on_the_number_of_micro_batches(backend: str, micro_batches: int) -> None:
    (whole, expected), (cut, actual) = step_of(backend, 1), step_of(backend, micro_batches)
    # A kernel's gradient sums 5 rows x 63 places in another order: sqrt(315 / 2) x 2**-24 = 7e-7 of its norm, for each
    # of the two; a library may compute the rows before it otherwise too, for another number of them: three passes.
    bound = 3 * 2 * 7e-7
    for parameter in NETWORK.parameters:
        ours, theirs = map(parameter.view, (actual, expected))
        assert np.linalg.norm(theirs) > 1e-3
        assert np.linalg.norm(ours - theirs) <= bound * np.linalg.norm(theirs)
    assert cut.loss == pytest.approx(whole.loss, rel=bound)
    assert cut.accuracy == whole.accuracy
    assert cut.gradient_norm == pytest.approx(whole.gradient_norm, rel=bound)
