"""Schedules: the order in which a pipeline stage computes its micro-batches, by name.

Each is a pure function under a table of itself, a row a stage and a column a moment: an operation stands where it
begins when messages take no time, `-` is its second moment (a whole backward takes two forwards), `.` waits. Messages,
reductions and the update are added alike to all of them, in pipeline.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hpcnn.errors import ConfigError, LaunchError
from hpcnn.parallel.program import Kind, Operation

Schedule = Callable[[int, int, int, int], list[Operation]]
"""(stage, stages, micro-batches, chunks: segments a stage) to what the stage computes, in order."""

SCHEDULES: dict[str, Schedule] = {}

SEVERAL_CHUNKS = ("interleaved",)
"""Schedules that need more than one segment a stage; the others have exactly one."""


def register_schedule(name: str) -> Callable[[Schedule], Schedule]:
    """Decorator. Raises ConfigError where the name is taken."""

    def register(schedule: Schedule) -> Schedule:
        if name in SCHEDULES:
            raise ConfigError(f"schedule {name!r} is registered already: choose another name")
        SCHEDULES[name] = schedule
        return schedule

    return register


def check_schedule(name: str, stages: int, chunks: int) -> None:
    """Raises ConfigError for an unknown name or chunks that do not suit it, LaunchError for too few stages."""
    if name not in SCHEDULES:
        raise ConfigError(f"--schedule {name!r} is unknown: choose from {', '.join(SCHEDULES)}")
    if name in SEVERAL_CHUNKS:
        if chunks < 2:
            raise ConfigError(f"--schedule {name} needs --chunks of at least 2 (segments a stage), not {chunks}")
        if stages < 2:
            raise LaunchError(f"--schedule {name} needs at least 2 stages, not {stages}: give --grid pp=2 or more")
    elif chunks != 1:
        several = " or ".join(SEVERAL_CHUNKS)
        raise ConfigError(
            f"--schedule {name} has one segment a stage, but --chunks is {chunks}: leave it out, "
            f"or use --schedule {several}"
        )


def compute_order(name: str, stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Operation]:
    """What `stage` computes in one step under the schedule of that name. Raises as `check_schedule` does."""
    check_schedule(name, stages, chunks)
    return SCHEDULES[name](stage, stages, micro_batches, chunks)


@register_schedule("layer-by-layer")
def layer_by_layer(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Operation]:
    """One micro-batch after the other through all stages and back: one stage works, the others wait. The reference.

    stage 0  F0.0 .    .    .    .    .    .    B0.0 -    F0.1 .    .    .    .    .    .    B0.1 -
    stage 1  .    F1.0 .    .    .    B1.0 -    .    .    .    F1.1 .    .    .    B1.1 -    .    .
    stage 2  .    .    F2.0 L2.0 -    .    .    .    .    .    .    F2.1 L2.1 -    .    .    .    .
    """
    order = []
    for micro_batch in range(micro_batches):
        order += [_forward(stage, micro_batch), _backward(stage, stages, micro_batch)]
    return order


@register_schedule("gpipe")
def gpipe(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Operation]:
    """All forwards, then all backwards, the last micro-batch first; all m micro-batches are open at once.

    It waits (p - 1) / (m + p - 1) of the time. GPipe (Huang et al., 2019), figure 2c.

    stage 0  F0.0 F0.1 F0.2 F0.3 .    .    .    .    .    .    B0.3 -    B0.2 -    B0.1 -    B0.0 -
    stage 1  .    F1.0 F1.1 F1.2 F1.3 .    .    .    B1.3 -    B1.2 -    B1.1 -    B1.0 -    .    .
    stage 2  .    .    F2.0 F2.1 F2.2 F2.3 L2.3 -    L2.2 -    L2.1 -    L2.0 -    .    .    .    .
    """
    forwards = [_forward(stage, micro_batch) for micro_batch in range(micro_batches)]
    return forwards + [_backward(stage, stages, micro_batch) for micro_batch in reversed(range(micro_batches))]


@register_schedule("1f1b")
def one_forward_one_backward(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Operation]:
    """A forward and a backward in turn, as soon as a first micro-batch is back; at most p - stage are open.

    It waits as long as GPipe does. PipeDream-Flush (Narayanan et al., 2021, Memory-efficient pipeline-parallel DNN
    training), section 3.2.

    stage 0  F0.0 F0.1 F0.2 .    .    .    .    B0.0 -    F0.3 B0.1 -    .    B0.2 -    .    B0.3 -
    stage 1  .    F1.0 F1.1 .    .    B1.0 -    F1.2 B1.1 -    F1.3 B1.2 -    .    B1.3 -    .    .
    stage 2  .    .    F2.0 L2.0 -    F2.1 L2.1 -    F2.2 L2.2 -    F2.3 L2.3 -    .    .    .    .
    """
    forwards = [_forward(stage, micro_batch) for micro_batch in range(micro_batches)]
    backwards = [_backward(stage, stages, micro_batch) for micro_batch in range(micro_batches)]
    return _in_turn(forwards, backwards, ahead=stages - 1 - stage)


@register_schedule("interleaved")
def interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Operation]:
    """1F1B over v segments a stage, in groups of micro-batches that pass one segment after the other.

    It waits (p - 1) / (v m + p - 1) of the time (where m is at least p), for more open micro-batches and messages.
    Narayanan et al., 2021, Efficient large-scale language model training on GPU clusters, section 2.2. There m is a
    multiple of p and groups are of p. Here m is cut into groups of at least p (shorter ones wait, some for ever), equal
    up to one, larger ones first, so that no backward comes before its forward. A backward is one moment in this table:

    stage 0  F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 .    B2.2 .    B2.3 B0.2 B0.3
    stage 1  .    F1.0 F1.1 F3.0 L3.0 F3.1 L3.1 F1.2 B1.0 F1.3 B1.1 F3.2 L3.2 F3.3 L3.3 B1.2 B1.3 .
    """
    forwards = [_forward(segment, m) for segment, m in _rounds(stage, stages, micro_batches, chunks, back=False)]
    backwards = [
        _backward(segment, stages * chunks, m)
        for segment, m in _rounds(stage, stages, micro_batches, chunks, back=True)
    ]
    ahead = 2 * (stages - 1 - stage) + (chunks - 1) * _groups(stages, micro_batches)[0]
    return _in_turn(forwards, backwards, ahead)


@register_schedule("zero-bubble")
def zero_bubble(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Operation]:
    """1F1B whose weights' gradients (W) wait until there is nothing more urgent: they fill the end.

    It waits a third as long as 1F1B (where m is at least p and the three parts take equally long), and no stage has
    more than p micro-batches open: stage s lags s of them behind with W. ZB-H1 (Qi et al., 2023, Zero bubble pipeline
    parallelism), section 2.1.

    stage 0  F0.0 F0.1 F0.2 .    .    I0.0 W0.0 F0.3 I0.1 W0.1 I0.2 W0.2 I0.3 W0.3
    stage 1  .    F1.0 F1.1 .    I1.0 F1.2 I1.1 W1.0 F1.3 I1.2 W1.1 I1.3 W1.2 W1.3
    stage 2  .    .    F2.0 J2.0 F2.1 J2.1 F2.2 J2.2 W2.0 F2.3 J2.3 W2.1 W2.2 W2.3
    """
    order = []
    forwards = [_forward(stage, micro_batch) for micro_batch in range(micro_batches)]
    inputs = [_backward(stage, stages, micro_batch, split=True) for micro_batch in range(micro_batches)]
    weights = [Operation(Kind.BACKWARD_WEIGHTS, stage, micro_batch) for micro_batch in range(micro_batches)]
    for operation in _in_turn(forwards, inputs, ahead=stages - 1 - stage):
        order.append(operation)
        if operation.kind is not Kind.FORWARD and (operation.micro_batch or 0) >= stage:
            order.append(weights.pop(0))
    return order + weights


def _forward(segment: int, micro_batch: int) -> Operation:
    return Operation(Kind.FORWARD, segment, micro_batch)


def _backward(segment: int, segments: int, micro_batch: int, split: bool = False) -> Operation:
    whole, to_input = (Kind.LOSS, Kind.LOSS_INPUT) if segment == segments - 1 else (Kind.BACKWARD, Kind.BACKWARD_INPUT)
    return Operation(to_input if split else whole, segment, micro_batch)


def _in_turn(forwards: list[Operation], backwards: list[Operation], ahead: int) -> list[Operation]:
    """`ahead` forwards, then a forward and a backward in turn, then the backwards that are left."""
    order = forwards[:ahead]
    for number, backward in enumerate(backwards):
        order += [*forwards[ahead + number : ahead + number + 1], backward]
    return order


def _groups(stages: int, micro_batches: int) -> list[int]:
    """Sizes of the groups: at least `stages` where there are that many, equal up to one, larger ones first."""
    groups = max(1, micro_batches // stages)
    small, larger = divmod(micro_batches, groups)
    return [small + (group < larger) for group in range(groups)]


def _rounds(stage: int, stages: int, micro_batches: int, chunks: int, back: bool) -> Iterator[tuple[int, int]]:
    """(segment, micro-batch): each group through all segments of the stage, from the last to the first if `back`."""
    segments = range(stage, stages * chunks, stages)
    start = 0
    for size in _groups(stages, micro_batches):
        for segment in reversed(segments) if back else segments:
            for micro_batch in range(start, start + size):
                yield segment, micro_batch
        start += size
