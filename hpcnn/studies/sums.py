"""Faults told by replicas.csv, of each run alone: replicas that are not equal any more, a rank left out of the sum.

With g_r the gradient of rank r and g the sum, as the ranks of a stage have it, <g_r, g> / <g, g> is a rank's share, and
the shares add up to 1. Where rank k is left out of g, those of all others do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hpcnn.records.evidence import SeenReplica
from hpcnn.studies.asked import sum_deviation
from hpcnn.studies.reading import Run


def sum_causes(run: Run) -> list[str]:
    """Faults of how the replicas of a run added gradients; empty where there is none, or nothing was recorded."""
    stages: dict[tuple[int, int], list[SeenReplica]] = defaultdict(list)
    for one in run.replicas:
        stages[one.epoch, one.stage].append(one)
    for (epoch, _), replicas in sorted(stages.items()):
        if other := [one.rank for one in replicas if one.weights != replicas[0].weights]:
            return [
                f"ranks drift apart: after epoch {epoch} the weights of rank {other[0]} are not those of rank "
                f"{replicas[0].rank}, in {run.name}"
            ]
    deviation = sum_deviation(run)
    if deviation is None:
        return []
    left_out = sorted({rank for replicas in stages.values() for rank in _left_out(replicas, deviation)})
    if not left_out:
        return []
    ranks = " and ".join(map(str, left_out))
    who = f"rank {ranks} is" if len(left_out) == 1 else f"ranks {ranks} are"
    return [f"{who} left out of the sum: the gradients of the other ranks make up all of it, in {run.name}"]


def _left_out(replicas: Sequence[SeenReplica], deviation: float) -> list[int]:
    """The rank without which the shares add up to 1, where they do not with all of them; empty else."""
    shares = {one.rank: one.share for one in replicas if one.share is not None}
    norms = [one.gradient_norm or 0.0 for one in replicas]
    total = max((one.sum_norm or 0.0 for one in replicas), default=0.0)
    if len(shares) < max(len(replicas), 2) or not total > 0:
        return []
    allowed = deviation * max(1.0, sum(norms) / total)
    beyond = sum(shares.values()) - 1
    rank = min(shares, key=lambda one: abs(beyond - shares[one]))
    return [rank] if abs(beyond) > allowed and abs(beyond - shares[rank]) <= allowed else []
