"""Strategies: pure functions from a grid to one rank's program, by name.

A rank of `data` with three micro-batches, one row a line of its step (the whole network is segment 0):

    compute      F0.0 L0.0 F0.1 L0.1 F0.2 L0.2
    communicate                                R0
    update                                        U0

With two segments, whose gradients are added each as soon as it is there, while the one before goes backward:

    compute      F0.0 F1.0 L1.0      B0.0
    communicate                 P1        P0 C1    C0
    update                                      U1    U0

`single` is the first without R0. `pipeline` and `hybrid` cut the network into stages: pipeline.py shows their programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcnn.errors import ConfigError, LaunchError
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.pipeline import stage_program
from hpcnn.parallel.program import Kind, Operation, Program


@dataclass(frozen=True)
class Plan:
    """What a program depends on besides the rank. `chunks` is segments a stage. `native`: the framework's own
    parallelism takes the place of all but the update."""

    grid: Grid
    micro_batches: int
    schedule: str = "1f1b"
    chunks: int = 1
    native: bool = False


Strategy = Callable[[Plan, int], Program]

STRATEGIES: dict[str, Strategy] = {}


def register_strategy(name: str) -> Callable[[Strategy], Strategy]:
    """Decorator. Raises ConfigError where the name is taken."""

    def register(strategy: Strategy) -> Strategy:
        if name in STRATEGIES:
            raise ConfigError(f"strategy {name!r} is registered already: choose another name")
        STRATEGIES[name] = strategy
        return strategy

    return register


def make_program(
    name: str, grid: Grid, rank: int, micro_batches: int, schedule: str = "1f1b", chunks: int = 1,
    *, native: bool = False,
) -> Program:  # fmt: skip
    """The program of `rank`; `schedule` is for strategies with stages, `native` for data.

    Raises ConfigError for an unknown strategy or schedule, LaunchError for a grid that it cannot use.
    """
    if name not in STRATEGIES:
        raise ConfigError(f"--strategy {name!r} is unknown: choose from {', '.join(STRATEGIES)}")
    return STRATEGIES[name](Plan(grid, micro_batches, schedule, chunks, native), rank)


def _compute(plan: Plan) -> Iterator[Operation]:
    """Micro-batch after micro-batch, so that only one is open at a time and memory is that of one.

    Of several segments each is posted behind its last backward, in the order in which it is completed."""
    last = plan.chunks - 1
    for micro_batch in range(plan.micro_batches):
        for segment in range(plan.chunks):
            yield Operation(Kind.FORWARD, segment, micro_batch)
        for segment in reversed(range(plan.chunks)):
            yield Operation(Kind.LOSS if segment == last else Kind.BACKWARD, segment, micro_batch)
            if plan.grid.dp > 1 and plan.chunks > 1 and micro_batch == plan.micro_batches - 1:
                yield Operation(Kind.POST, segment)


@register_strategy("single")
def single(plan: Plan, rank: int) -> Program:
    """One process holds everything."""
    grid = plan.grid
    if grid.size != 1:
        raise LaunchError(
            f"--strategy single is one process, but {grid.size} ranks run: start one, or use --strategy data"
        )
    return (*_compute(plan), Operation(Kind.UPDATE, 0))


@register_strategy("data")
def data(plan: Plan, rank: int) -> Program:
    """Every rank holds the whole network and a part of every global batch; gradients are added across ranks."""
    grid = plan.grid
    if grid.pp != 1 or grid.tp != 1:
        raise LaunchError(f"--strategy data has one stage and one part, but --grid is {grid}: give dp={grid.size}")
    if plan.native:
        return Operation(Kind.NATIVE, 0), Operation(Kind.UPDATE, 0)
    ends = []
    for segment in reversed(range(plan.chunks)):
        if grid.dp > 1:
            ends.append(Operation(Kind.REDUCE if plan.chunks == 1 else Kind.COMPLETE, segment))
        ends.append(Operation(Kind.UPDATE, segment))
    return (*_compute(plan), *ends)


@register_strategy("pipeline")
def pipeline(plan: Plan, rank: int) -> Program:
    """Every rank holds a stage: some consecutive layers. Micro-batches pass through all of them and back."""
    grid = plan.grid
    if grid.dp != 1 or grid.tp != 1:
        raise LaunchError(
            f"--strategy pipeline has one replica and one part, but --grid is {grid}: give pp={grid.size}, "
            "or use --strategy hybrid"
        )
    return _stage(plan, rank)


@register_strategy("hybrid")
def hybrid(plan: Plan, rank: int) -> Program:
    """Several replicas of a pipeline: each stage's gradients are added across its replicas."""
    grid = plan.grid
    if grid.dp == 1 or grid.pp == 1 or grid.tp != 1:
        raise LaunchError(
            f"--strategy hybrid has several replicas of several stages and one part, but --grid is {grid}: "
            "give dp=2,pp=2 or more, or use --strategy data or pipeline"
        )
    return _stage(plan, rank)


def _stage(plan: Plan, rank: int) -> Program:
    _, stage, _ = plan.grid.place(rank)
    return stage_program(plan.schedule, stage, plan.grid.pp, plan.micro_batches, plan.chunks, plan.grid.dp)
