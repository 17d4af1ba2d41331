"""layers.csv: where the time is and where the traffic is, from a short measured pass of each layer alone.

Each layer is built as a segment of its own, which every backend can do; what a framework would fuse across layers is
therefore measured apart.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

from hpcnn.data.dataset import aligned_empty
from hpcnn.network.architecture import Architecture, Segment
from hpcnn.network.cost import layer_costs
from hpcnn.network.counter import Purpose, uniform
from hpcnn.network.initial import segment_weights
from hpcnn.network.masks import segment_masks
from hpcnn.wrappers.contract import Array
from hpcnn.wrappers.registry import OpenBackend

MOST_REPEATS, LEAST_REPEATS, ENOUGH_SECONDS = 5, 2, 0.02
"""Of a layer after its warm-up: long ones, which noise moves little, are not what a run is to begin late for."""


def measure_layers(build: OpenBackend, architecture: Architecture, rows: int, seed: int) -> list[tuple[Any, ...]]:
    """(layer, parameters, gradient_bytes, flops, forward_seconds, backward_seconds) a layer; the last three are of one
    row, forward FLOPs and seconds, measured on `rows` rows at once.

    Seconds are medians over repeats after one that warms up: five, of long layers two.
    """
    table: list[tuple[Any, ...]] = []
    for place, cost in enumerate(layer_costs(architecture)):
        forward, backward = _measure(build, architecture.segment(place, place + 1), rows, seed)
        table.append((cost.layer, cost.parameters, cost.gradient_bytes, cost.flops, forward / rows, backward / rows))
    return table


def _measure(build: OpenBackend, segment: Segment, rows: int, seed: int) -> tuple[float, float]:
    weights, gradient = aligned_empty((segment.size,)), aligned_empty((segment.size,))
    weights[:] = segment_weights(segment, seed)
    gradient.fill(0.0)
    model = build(segment, weights, gradient)
    x = _values(segment.input_shape, rows, seed)
    masks = segment_masks(segment, seed, 1, np.arange(rows))
    labels = np.zeros(rows, np.int64)
    output_gradient = _values(segment.output_shape, rows, seed + 1)
    forwards, backwards = [], []
    for repeat in range(1 + MOST_REPEATS):
        began = time.perf_counter()
        model.forward(0, x, masks)
        between = time.perf_counter()
        if segment.is_last:
            model.loss_backward(0, labels, rows)
        else:
            model.backward(0, output_gradient)
        forwards.append(between - began)
        backwards.append(time.perf_counter() - between)
        if repeat >= LEAST_REPEATS and sum(forwards[1:]) + sum(backwards[1:]) >= ENOUGH_SECONDS:
            break
    return median(forwards[1:]), median(backwards[1:])


def _values(shape: tuple[int, ...], rows: int, seed: int) -> Array:
    values = aligned_empty((rows, *shape))
    values.ravel()[:] = uniform(seed, (Purpose.INITIAL_WEIGHTS, 0, 0), values.size)
    return values
