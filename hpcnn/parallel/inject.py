"""Faults made on purpose, to see whether `compare` names them: the two commonest of data parallelism.

`sum-without-mean`: each rank takes the mean over its own rows, the sum over ranks is not divided: N times too large.
`mean-twice`: the loss takes the mean over the global batch and the sum over ranks is divided once more: N times too
small.
"""

from __future__ import annotations

from hpcnn.config import FAULTS
from hpcnn.errors import ConfigError, LaunchError
from hpcnn.parallel.executor import Divisor, LocalBatch, global_rows


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
