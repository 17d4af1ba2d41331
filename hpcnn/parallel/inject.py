"""Faults made on purpose, to see whether they are named: by `compare` the two commonest of data parallelism, by the
run's own summary a late rank (`--slow`).

`sum-without-mean`: each rank takes the mean over its own rows, the sum over ranks is not divided: N times too large.
`mean-twice`: the loss takes the mean over the global batch and the sum over ranks is divided once more: N times too
small.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from hpcnn.config import FAULTS, RunConfig
from hpcnn.errors import ConfigError, LaunchError
from hpcnn.parallel.parts import Divisor, LocalBatch, global_rows

Result = TypeVar("Result")


def injected_divisor(fault: str | None, ranks: int) -> Divisor:
    """The loss head's divisor with `fault` in it, None for the right one.

    Raises LaunchError where it would change nothing, ConfigError for an unknown fault.
    """
    if fault is None:
        return global_rows
    if fault not in FAULTS:
        raise ConfigError(f"--inject {fault!r} is unknown: choose from {', '.join(FAULTS)}")
    if ranks == 1:
        raise LaunchError(f"--inject {fault} does nothing in one process: start at least two ranks")
    if fault == "sum-without-mean":
        return _own_rows
    return lambda batch: float(batch.global_rows * ranks)


def _own_rows(batch: LocalBatch) -> float:
    return float(len(batch.labels))


def slow_factor(config: RunConfig, rank: int, ranks: int) -> float:
    """By how much `--slow` stretches what `rank` computes, 1.0 where it doesn't. LaunchError if it names no rank."""
    if config.slow_rank is None:
        return 1.0
    late, factor = config.slow_rank
    if late >= ranks:
        there = "only rank 0 runs" if ranks == 1 else f"ranks 0 to {ranks - 1} run"
        raise LaunchError(f"--slow {config.slow} names rank {late}, but {there}: name one of those, or start more")
    return factor if rank == late else 1.0


def slowed(call: Callable[..., Result], factor: float) -> Callable[..., Result]:
    """`call`, asleep afterwards until it has taken `factor` times as long; other processes have its core meanwhile."""
    if factor == 1.0:
        return call

    def late(*arguments: object) -> Result:
        began = time.monotonic()
        found = call(*arguments)
        time.sleep((factor - 1.0) * (time.monotonic() - began))
        return found

    return late
