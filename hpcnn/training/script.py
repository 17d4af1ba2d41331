"""What a script does under a launcher as the command does: it opens the world, and its last error is said once.

A script that dies on one rank would leave the others waiting for it; one that dies on all would say why N times.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from hpcnn.errors import HpcnnError

OpenWorld = Callable[[Mapping[str, str], str], Any]
"""Environment and strategy to a communicator: hpcnn.cluster.launch.open_world, a room that is below this one."""

SECONDS_TO_SPEAK = 0.5
"""The launcher forwards a rank's words and announces the abort on two ways; ours are to come first."""

_worlds: dict[str, Any] = {}


def world(open_world: OpenWorld, strategy: str) -> Any:
    """Collective. This process's communicator, opened once. Raises LaunchError where it is not what was promised."""
    if strategy not in _worlds:
        comm = open_world(os.environ, strategy)
        if comm.size > 1 and not _worlds:
            _say_last_error_once(comm)
        _worlds[strategy] = comm
    return _worlds[strategy]


@contextmanager
def alike() -> Iterator[None]:
    """A block whose errors all ranks raise together."""
    try:
        yield
    except HpcnnError as error:
        error.agreed = True
        raise


def _say_last_error_once(comm: Any) -> None:
    """Of an error that nobody caught: one that all ranks raise is told by rank 0, any other ends the job at once."""
    told = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        together = isinstance(error, HpcnnError) and error.agreed
        if not together or comm.rank == 0:
            told(kind, error, trace)
        sys.stderr.flush()
        if together:
            comm.Barrier()  # the launcher ends the job at the first process that fails
        else:
            time.sleep(SECONDS_TO_SPEAK)
            comm.Abort(1)

    sys.excepthook = tell
