"""The two commonest faults of data parallelism, told by the first step: its loss is right, and its gradient is N times
too large (the mean is missing) or too small (taken twice).

The second is exact. The first is not where shares are unequal: with the mean m_r of rank r over its n_r of B rows, the
gradient g of the batch, and since the n_r add up to B,

    sum_r m_r = N g + sum_r (1 - N n_r / B) (m_r - g)

The second term is about spread * |m_r - g| / |g| of the first, with spread = sqrt(sum_r (1 - N n_r / B)^2) / N; n_r
follows from rule 3, and |m_r - g| of a few rows is taken to be up to 2 |g|.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hpcnn.data.shards import replica_shards
from hpcnn.studies.reading import Run
from hpcnn.studies.tolerance import FIRST_STEP

BAND = 0.15
"""How far a ratio may be from N even with equal shares (micro-batches, batches that shards do not divide)."""

AS_CLOSE = 0.01
"""Candidates whose factors are within this of each other cannot be told apart: all are named."""


@dataclass(frozen=True)
class _Candidate:
    """Run over baseline, at the first step, if `cause` holds; `band`: how far from it (logarithm) still counts."""

    factor: float
    band: float
    cause: str


def fault_causes(baseline: Run, run: Run) -> tuple[str, ...]:
    """Faults that explain the gradient norms of the first step; empty where none does, or nothing is wrong."""
    if not baseline.steps or not run.steps:
        return ()
    norms = [float(one.losses["gradient_norm"][0]) for one in (baseline, run)]
    losses = [float(one.losses["train_loss"][0]) for one in (baseline, run)]
    if not all(math.isfinite(norm) and norm > 0 for norm in norms):
        return ()
    ratio = math.log(norms[1] / norms[0])
    near = {
        one.cause: distance
        for one in _candidates(baseline, run)
        if (distance := abs(ratio - math.log(one.factor))) <= one.band
        and distance < abs(ratio)
        and _loss_agrees(losses, one)
    }
    closest = min(near.values(), default=0.0)
    return tuple(cause for cause, distance in near.items() if distance <= closest + AS_CLOSE)


def _loss_agrees(losses: list[float], candidate: _Candidate) -> bool:
    """The loss is that of the same rows and weights; or it was added up with the same fault."""
    baseline, run = losses
    if abs(run - baseline) <= FIRST_STEP * max(abs(baseline), 1.0):
        return True
    return baseline > 0 and run > 0 and abs(math.log(run / baseline) - math.log(candidate.factor)) <= candidate.band


def _candidates(baseline: Run, run: Run) -> Iterator[_Candidate]:
    for at_fault, sign in ((run, 1.0), (baseline, -1.0)):
        band = math.log(1 + BAND + 2 * _share_spread(at_fault))
        for parts, words in _parts(at_fault):
            missing = f"mean is missing: gradients are added across {words} and not divided, in {at_fault.name}"
            twice = f"mean is taken twice: gradients added across {words} are divided once more, in {at_fault.name}"
            yield _Candidate(parts**sign, band, missing)
            yield _Candidate(parts**-sign, band, twice)
    if 1 < baseline.summands != run.summands > 1:
        factor = run.summands / baseline.summands
        both = f"in both runs, of {baseline.summands} and {_words(run)}"
        band = math.log(1 + BAND + 2 * max(_share_spread(baseline), _share_spread(run)))
        yield _Candidate(factor, band, f"mean is missing: gradients are added across ranks and not divided, {both}")
        yield _Candidate(1 / factor, band, f"mean is taken twice: gradients are divided by ranks once more, {both}")


def _parts(run: Run) -> list[tuple[int, str]]:
    """What a run's gradient is added up from: (how many, in words), where it is more than one."""
    ranks, pieces = run.summands, run.micro_batches
    parts = [(ranks, _words(run)), (pieces, f"{pieces} micro-batches")]
    if ranks > 1 and pieces > 1:
        parts.append((ranks * pieces, f"{_words(run)} x {pieces} micro-batches"))
    return [(count, words) for count, words in parts if count > 1]


def _words(run: Run) -> str:
    return f"{run.summands} {'ranks' if run.summands == run.ranks else 'replicas'}"


def _share_spread(run: Run) -> float:
    """`spread` of the first batch, dealt from the logical shards in turn; 0 where run.json does not tell the shards."""
    shards, batch = run.manifest.get("logical_shards"), run.config.get("global_batch")
    if type(shards) is not int or type(batch) is not int or not 1 <= run.summands <= shards:
        return 0.0
    rounds, rest = divmod(batch, shards)
    shares = []
    for rank in range(run.summands):
        mine = replica_shards(shards, run.summands, rank)
        shares.append(rounds * len(mine) + len(range(mine.start, min(mine.stop, rest))))
    return math.sqrt(sum((1 - run.summands * share / batch) ** 2 for share in shares)) / run.summands
