"""The late rank of a run, named for people: who keeps the others waiting, how long, and over what.

Replicas do the same work on equal shares, begin each step together and wait for its last reduction: a rank is late that
comes behind the others' median in most steps, by a part of the step that somebody would miss. Stages of a pipeline do
unequal work and meet in messages: the one that others wait for is the one that works much longer.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from hpcnn.records.run_folder import RankTimes

STEADY = 0.75
"""Share of steps: of equal ranks each is behind the others' median in half of them, one that is always late in all;
half-way between."""
LUCK = 0.01
"""By chance any of equal ranks gets to its share with at most this probability (Hoeffding's bound)."""
WORTH = 0.05
"""Share of a step, or of the epochs' time: repeated runs are some 3 % apart, so that less would hardly be seen."""
STAGE = 1.5
"""Times the others' median: a network is cut between layers, and can seldom be cut more evenly."""
MOST = 3
"""Named at most."""

CAUSES = {
    "its loading takes": ("load",),
    "its forward and backward take": ("forward", "backward", "gradient"),
    "its updates take": ("update",),
    "its other work takes": ("other",),
}
"""What a rank does by itself in a step, and the phases of it."""
KEPT_WAITING = "it is kept waiting itself, by messages or by other stages"


def late_lines(times: Sequence[RankTimes], training: float) -> list[str]:
    """For the summary of a run of several ranks whose epochs took `training` seconds; nothing where none can tell."""
    if len(times) < 2 or not training:
        return []
    of_group = {one.rank: [other for other in times if _group(other) == _group(one)] for one in times}
    if all(len(group) == 1 for group in of_group.values()):
        return _named([_stage(one, times, training) for one in times])
    steps = max(one.lateness.steps for one in times)
    if not steps:
        return []
    if _luck(1.0, steps, len(times)) > LUCK:
        return [f"late: {steps} steps are too few to tell"]
    late = [one for one in times if _is_late(one, len(times), training)]
    found = [_replica(one, of_group[one.rank]) for one in late]
    # of those that hold the same replica up, the one that has a reason of its own
    return _named([line for line in found if not line.endswith(KEPT_WAITING)] or found)


def _named(lines: Sequence[str | None]) -> list[str]:
    named = [f"late: {line}" for line in lines if line is not None]
    more = [f"late: and {len(named) - MOST} more"] if len(named) > MOST else []
    return [*named[:MOST], *more] or ["late: none"]


def _group(one: RankTimes) -> str:
    return one.lateness.group


def _is_late(one: RankTimes, ranks: int, training: float) -> bool:
    _, steps, later, seconds = one.lateness
    share = later / steps if steps else 0.0
    return share >= STEADY and _luck(share, steps, ranks) <= LUCK and seconds * steps >= WORTH * training


def _luck(share: float, steps: int, ranks: int) -> float:
    """Bound of the probability that any of `ranks` equal ones comes late in that share of steps or more."""
    return ranks * math.exp(-2 * steps * (share - 0.5) ** 2)


def _replica(one: RankTimes, group: Sequence[RankTimes]) -> str:
    _, steps, later, seconds = one.lateness
    others = [other for other in group if other is not one]
    excess, words = max(_cause(one, others, cause) for cause in CAUSES)
    reason = words if excess >= seconds * steps / 2 else KEPT_WAITING
    return (
        f"{_name(one)}, behind the others' median in {later / steps:.0%} of {steps} steps, typically by "
        f"{1000 * seconds:.1f} ms: {reason}"
    )


def _stage(one: RankTimes, times: Sequence[RankTimes], training: float) -> str | None:
    others = [other for other in times if other is not one]
    own = [phase for phases in CAUSES.values() for phase in phases if phase != "other"]
    mine, theirs = _seconds(one, own), statistics.median(_seconds(other, own) for other in others)
    if mine < STAGE * theirs or mine - theirs < WORTH * training:
        return None
    _, words = max(_cause(one, others, cause) for cause in CAUSES)
    return f"{_name(one)}, the stage that others wait for: {words}"


def _name(one: RankTimes) -> str:
    return f"rank {one.rank} ({one.host})"


def _cause(one: RankTimes, others: Sequence[RankTimes], cause: str) -> tuple[float, str]:
    """Seconds that a rank spent on it above the others' median, and that in words."""
    phases = CAUSES[cause]
    mine, theirs = _seconds(one, phases), statistics.median(_seconds(other, phases) for other in others)
    if mine < 100 * theirs:
        return mine - theirs, f"{cause} {mine / theirs:.1f} times theirs"
    return mine - theirs, f"{cause} {mine:.2f} s, theirs {theirs:.2f} s"


def _seconds(one: RankTimes, phases: Sequence[str]) -> float:
    """In epochs."""
    return sum(tally.seconds for epoch, phase, tally in one.rows if epoch > 0 and phase in phases)
