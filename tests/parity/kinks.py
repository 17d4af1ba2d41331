"""How near a row stands to a kink, where relu or a max pool changes its slope and float32 cannot tell the side.

Among the millions of activations of a batch one or two lie within float32 noise of a kink. Falling on the other side
moves a gradient by up to some 1e-3, and says nothing about a backend. So the parity tests leave such rows out, by the
float64 mathematics alone. Exact ties stay in: for them rule 2 says which way to go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tests.parity.numpy_reference import MaxPool, Reference, ReLU, Weighted

Array = Any

CLEAR = 16 * 2.0**-24
"""A float32 sum of k products of either sign is off by some 0.35 x 2**-24 of the sum of their magnitudes (partial sums
grow like sqrt(i), so roundings add up to 0.3 k of a term, and magnitudes to 0.8 k), and its inputs' own errors add as
much again. The largest of millions is five times the typical one: 5 x 0.35 x sqrt(2) x 2**-24 = 2.5 x 2**-24, for each
of the two values that a pool compares. Three times that, since after a step the weights are off by noise as well."""


def margins(architecture: Any, weights: Array, x: Array, masks: Sequence[Array]) -> Array:
    """float64[n]: of each row, the smallest distance of an activation from a kink that it is not exactly on, relative
    to the sum of magnitudes that the activation is a sum of."""
    operations = Reference(architecture, weights).operations
    magnitudes = Reference(architecture, np.abs(weights)).operations
    value, size, remaining = np.asarray(x, dtype=np.float64), np.abs(x), list(masks)
    smallest = np.full(len(x), np.inf)
    for layer, operation, magnitude in zip(architecture.layers, operations, magnitudes, strict=False):
        if isinstance(operation, Weighted):
            size = magnitude.forward(np.abs(value))
        elif isinstance(operation, ReLU):
            smallest = np.minimum(smallest, _smallest(np.abs(value), size))
        elif isinstance(operation, MaxPool):
            smallest = np.minimum(smallest, _smallest(_lead(value, layer), size := operation.forward(size)))
        elif layer.type_name == "dropout":
            operation.mask = remaining.pop(0)
        else:
            size = operation.forward(size)
        value = operation.forward(value)
    return smallest


def _lead(x: Array, layer: Any) -> Array:
    """By how much each window's maximum is above the largest value that differs from it; 0 where none does."""
    windows = sliding_window_view(x, layer.size, axis=(2, 3))[:, :, :: layer.stride[0], :: layer.stride[1]]
    below = windows.max(axis=(-2, -1), keepdims=True) - windows
    lead = np.where(below > 0, below, np.inf).min(axis=(-2, -1))
    return np.where(np.isfinite(lead), lead, 0.0)


def _smallest(distance: Array, size: Array) -> Array:
    """Of each row, the smallest distance that is not 0, relative to size."""
    relative = np.full(distance.shape, np.inf)
    np.divide(distance, size, out=relative, where=distance > 0)
    return relative.reshape(len(relative), -1).min(axis=1)
