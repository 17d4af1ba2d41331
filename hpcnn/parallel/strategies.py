"""Strategies: pure functions from a grid to one rank's program, by name.

A rank of `data` with three micro-batches, one row a line of its step (the whole network is segment 0):

    compute      F0.0 L0.0 F0.1 L0.1 F0.2 L0.2
    communicate                                R0
    update                                        U0

`single` is the same without R0.
"""

from __future__ import annotations

from collections.abc import Callable

from hpcnn.errors import ConfigError, LaunchError
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.program import Kind, Operation, Program

Strategy = Callable[[Grid, int, int], Program]

STRATEGIES: dict[str, Strategy] = {}


def register_strategy(name: str) -> Callable[[Strategy], Strategy]:
    """Decorator. Raises ConfigError where the name is taken."""

    def register(strategy: Strategy) -> Strategy:
        if name in STRATEGIES:
            raise ConfigError(f"strategy {name!r} is registered already: choose another name")
        STRATEGIES[name] = strategy
        return strategy

    return register


def make_program(name: str, grid: Grid, rank: int, micro_batches: int) -> Program:
    """The program of `rank`. Raises ConfigError for an unknown strategy, LaunchError for a grid that it cannot use."""
    if name not in STRATEGIES:
        raise ConfigError(f"--strategy {name!r} is unknown: choose from {', '.join(STRATEGIES)}")
    return STRATEGIES[name](grid, rank, micro_batches)


def _compute(micro_batches: int) -> list[Operation]:
    """Micro-batch after micro-batch, so that only one is open at a time and memory is that of one."""
    return [
        Operation(kind, 0, micro_batch)
        for micro_batch in range(micro_batches)
        for kind in (Kind.FORWARD, Kind.LOSS)
    ]  # fmt: skip


@register_strategy("single")
def single(grid: Grid, rank: int, micro_batches: int) -> Program:
    """One process holds everything."""
    if grid.size != 1:
        raise LaunchError(
            f"--strategy single is one process, but {grid.size} ranks run: start one, or use --strategy data"
        )
    return (*_compute(micro_batches), Operation(Kind.UPDATE, 0))


@register_strategy("data")
def data(grid: Grid, rank: int, micro_batches: int) -> Program:
    """Every rank holds the whole network and a part of every global batch; gradients are added across ranks."""
    if grid.pp != 1 or grid.tp != 1:
        raise LaunchError(f"--strategy data has one stage and one part, but --grid is {grid}: give dp={grid.size}")
    reduce = (Operation(Kind.REDUCE, 0),) if grid.dp > 1 else ()
    return (*_compute(micro_batches), *reduce, Operation(Kind.UPDATE, 0))
