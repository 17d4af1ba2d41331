"""Cuts a network so that gradients can be added while what lies before them still goes backward.

Dense layers hold most of the traffic and convolutions most of the time, and the backward comes to the dense ones first:
their gradient can travel meanwhile. Each cut costs a message of its own, so a network is cut only where that pays by a
simple model: a rank computes, and one message after another moves, at the rates below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from hpcnn.network.architecture import Architecture, Segment
from hpcnn.network.cost import LayerCost, layer_costs
from hpcnn.network.partition import HEAD, check_count

FLOPS_A_SECOND, BYTES_A_SECOND, MESSAGE_SECONDS = 5e10, 2e9, 2e-4
"""Of a core with oneDNN, of a sum over two ranks of a node, and of a message by itself: in the order of magnitude of
today's machines. They are written here, not measured as a run starts: where a network is cut changes the last bits."""
CUT_SECONDS = 1e-3
"""What a cut takes of the rank's own time: calls of the framework in two parts, and a thread that wakes. Measured with
torch on two ranks of one thread: a step of 18.5 ms took 0.9 ms longer."""
BACKWARD = 2
"""Forwards that a backward takes as long as."""
MOST_SEGMENTS, NEAR = 4, 1.01


def partition_for_overlap(architecture: Architecture, rows: int, segments: int | None = None) -> tuple[Segment, ...]:
    """The cut into `segments` whose step ends first, by default into as few as come near the best of all.

    `rows`: of a rank in a step. Raises LaunchError where the network has too few layers."""
    costs, best = layer_costs(architecture), []
    if segments is not None:
        check_count(architecture, segments)
    for count in range(1, MOST_SEGMENTS + 1) if segments is None else (segments,):
        cuts = _cuts(costs, count)
        best += sorted((step_seconds(costs, cut, rows), cut) for cut in cuts)[:1]
    enough = NEAR * min(best)[0]
    starts = next(cut for seconds, cut in best if seconds <= enough)
    return tuple(architecture.segment(*ends) for ends in pairwise([*starts, len(costs)]))


def step_seconds(costs: Sequence[LayerCost], starts: Sequence[int], rows: int) -> float:
    """From the backward's begin until the last gradient is added, by the model."""
    computed = moved = 0.0
    for start, stop in reversed([*pairwise([*starts, len(costs)])]):
        computed += BACKWARD * rows * sum(cost.flops for cost in costs[start:stop]) / FLOPS_A_SECOND
        computed += CUT_SECONDS if start else 0
        size = sum(cost.gradient_bytes for cost in costs[start:stop])
        moved = max(computed, moved) + MESSAGE_SECONDS + size / BYTES_A_SECOND
    return moved


def _cuts(costs: Sequence[LayerCost], segments: int) -> Iterator[tuple[int, ...]]:
    """Where segments may begin. Layers without parameters go with the one before them, unless more cuts are wanted."""
    last = len(costs) - HEAD
    places = [place for place in range(1, last + 1) if costs[place].parameters]
    if segments - 1 > len(places) > 0:
        places = list(range(1, last + 1))
    yield from ((0, *cut) for cut in combinations(places, segments - 1))
