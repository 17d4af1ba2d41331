"""What a segment must answer: forward and backward of a run of layers, in the float64 mathematics of tests/parity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from hpcnn.network import Segment
from tests.parity.numpy_reference import Reference

Array = Any


@dataclass(frozen=True)
class Rows:
    """One forward: inputs, masks, and what its backward gets (an output gradient, or labels)."""

    x: Array
    masks: Sequence[Array]
    output_gradient: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Answer:
    """In float64. `loss` and `correct` are those of a segment with the loss head."""

    output: Array
    gradient: Array
    input_gradient: Array
    loss: float = float("nan")
    correct: int = -1


class SegmentReference(Reference):
    """A segment with its flat weights. Softmax is in the loss head, as it is in the wrappers."""

    def __init__(self, segment: Segment, weights: Array) -> None:
        layers = segment.layers[:-1] if segment.is_last else segment.layers
        super().__init__(SimpleNamespace(layers=(*layers, None), input_shape=segment.input_shape), weights)

    def backward(self, slope: Array) -> tuple[Array, Array]:
        """Gradients by the weights and by the input, of the forward before."""
        gradient: list[Array] = []
        for operation in reversed(self.operations):
            slope, own = operation.backward(slope)
            gradient[:0] = [part.ravel() for part in own]
        return np.concatenate([np.empty(0), *gradient]), slope


def answer(segment: Segment, weights: Array, rows: Rows) -> Answer:
    """Of a forward and a backward with `rows.output_gradient`."""
    reference = SegmentReference(segment, weights)
    output = reference.logits(rows.x, rows.masks)
    return Answer(output, *reference.backward(rows.output_gradient.astype(np.float64)))


def loss_answer(segment: Segment, weights: Array, rows: Rows, divisor: float) -> Answer:
    """Of a forward and a loss over `divisor`; segment is the last."""
    reference = SegmentReference(segment, weights)
    logits = reference.logits(rows.x, rows.masks)
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability = exponents / exponents.sum(axis=1, keepdims=True)
    own = np.arange(len(rows)), rows.labels
    slope = probability.copy()
    slope[own] -= 1
    loss, correct = -np.log(probability[own]).sum(), np.count_nonzero(logits.argmax(axis=1) == rows.labels)
    return Answer(logits, *reference.backward(slope / divisor), float(loss), int(correct))
