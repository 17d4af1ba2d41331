"""Cuts an architecture into consecutive segments: as even as its layers allow, or where the user says.

The softmax never leaves the layer before it, which is the loss head with it. A segment may be without parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf, isfinite

from hpcnn.errors import ConfigError, LaunchError
from hpcnn.network.architecture import Architecture, Segment
from hpcnn.network.cost import layer_costs

HEAD = 2
"""Layers at the end that stay together."""


def partition(architecture: Architecture, segments: int, costs: Sequence[float] | None = None) -> tuple[Segment, ...]:
    """`segments` consecutive segments whose largest cost is as small as it can be, the first segment first.

    `costs` has an entry a layer, of any unit (measured seconds, say); by default the floating point operations
    of the forward. Raises LaunchError where the network has too few layers.
    """
    if costs is None:
        costs = [cost.flops for cost in layer_costs(architecture)]
    if len(costs) != len(architecture.layers):
        raise ValueError(f"{len(costs)} costs for {len(architecture.layers)} layers")
    check_count(architecture, segments)
    return _segments(architecture, balance_stages([*costs[:-HEAD], sum(costs[-HEAD:])], segments))


def partition_at(architecture: Architecture, firsts: Sequence[str], segments: int) -> tuple[Segment, ...]:
    """The cut of `--stages`: `firsts` names the first layer of every segment but the first.

    Raises ConfigError for a name that is unknown, out of order or where no cut can be, or another number of segments.
    """
    check_count(architecture, segments)
    names = [layer.name for layer in architecture.layers]
    given = f"--stages {','.join(firsts)}"
    starts = [0]
    for name in firsts:
        if name not in names:
            raise ConfigError(f"{given}: network {architecture.name!r} has no layer {name!r}, but {', '.join(names)}")
        start = names.index(name)
        if start == 0:
            raise ConfigError(f"{given}: {name!r} is the first layer of all: name the first of each later stage only")
        if start > len(names) - HEAD:
            raise ConfigError(f"{given}: {name!r} is the loss head with {names[-HEAD]!r}: cut before {names[-HEAD]!r}")
        if start <= starts[-1]:
            raise ConfigError(f"{given}: {name!r} is not after {names[starts[-1]]!r}: name layers in network order")
        starts.append(start)
    if len(starts) != segments:
        layers = "1 layer" if segments == 2 else f"{segments - 1} layers"
        raise ConfigError(f"{given} makes {len(starts)} segments, but {segments} are needed: name {layers}")
    return _segments(architecture, starts)


def balance_stages(costs: Sequence[float], stages: int) -> list[int]:
    """Where each of `stages` consecutive, non-empty runs of `costs` begins, so that the largest sum is smallest.

    Of all such cuts it is one with the smallest sum of squares, so that the runs beside the largest are even too.
    Exact, by dynamic programming over (runs, end), in time proportional to stages x len(costs)^2. Raises ValueError for
    a cost that is negative or no number, and for more stages than costs.
    """
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} layers cannot be cut into {stages} stages")
    if bad := [cost for cost in costs if not (isfinite(cost) and cost >= 0)]:
        raise ValueError(f"a cost is {bad[0]}; it must be a number of at least 0")
    sums: list[float] = [0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    largest = _cheapest(sums, stages, squares=False, limit=inf)[0]
    return _cheapest(sums, stages, squares=True, limit=largest)[1]


def _cheapest(sums: Sequence[float], stages: int, *, squares: bool, limit: float) -> tuple[float, list[int]]:
    """The smallest largest run, or the smallest sum of squares, of cuts without a run over `limit`; and that cut."""
    layers = len(sums) - 1
    best: list[float] = [0, *[inf] * layers]  # best[end]: of the first `end` layers in as many runs as done so far
    starts: list[list[int]] = []
    for _ in range(stages):
        row, chosen = [inf] * (layers + 1), [0] * (layers + 1)
        for end in range(1, layers + 1):
            for start in range(end):
                run = sums[end] - sums[start]
                if run > limit or best[start] == inf:
                    continue
                total = best[start] + run * run if squares else max(best[start], run)
                if total < row[end]:
                    row[end], chosen[end] = total, start
        best = row
        starts.append(chosen)
    cut = [layers]
    for chosen in reversed(starts):
        cut.append(chosen[cut[-1]])
    return best[layers], cut[:0:-1]


def _segments(architecture: Architecture, starts: Sequence[int]) -> tuple[Segment, ...]:
    return tuple(architecture.segment(*ends) for ends in pairwise([*starts, len(architecture.layers)]))


def check_count(architecture: Architecture, segments: int) -> None:
    """Raises LaunchError where the network has too few layers for so many segments."""
    most = len(architecture.layers) - HEAD + 1
    if not 1 <= segments <= most:
        raise LaunchError(
            f"network {architecture.name!r} can be cut into 1 to {most} segments, not {segments}: "
            "use fewer stages (pp of --grid, --chunks) or a deeper network"
        )
