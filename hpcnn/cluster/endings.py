"""How the command ends other than well: one line for what is the user's to mend, and no rank left waiting."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from hpcnn.errors import HpcnnError, LaunchError

SECONDS_TO_SPEAK = 0.5
"""The launcher forwards a rank's words and announces the abort on two ways; ours are to come first."""


def refuse(error: HpcnnError) -> int:
    """Say the error, on the first rank alone where a launcher started several."""
    from hpcnn.cluster.launch import launched_together, meet

    together = launched_together(os.environ)
    if (not together or together.rank == 0) and not getattr(error, "quiet", False):
        print(f"hpcnn: {error}", file=sys.stderr, flush=True)
    if together:
        with contextlib.suppress(LaunchError):
            meet()
    return error.exit_status


def stopped(stop: BaseException, *, speak: bool = True) -> int:
    name = str(stop) or "Ctrl-C"
    if speak:
        print(f"hpcnn: stopped by {name}", file=sys.stderr, flush=True)
    return 128 + (signal.SIGTERM if name == "SIGTERM" else signal.SIGINT)


@contextlib.contextmanager
def sigterm_stops() -> Iterator[None]:
    """SIGTERM (scancel, mpirun on Ctrl-C) ends a training as Ctrl-C does: with its last words in the files."""

    def stop(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt("SIGTERM")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def leave(comm: Any, stop: BaseException) -> NoReturn:
    """End this rank without MPI's farewell, for which the other ranks may never come; the launcher ends them.

    Where the launcher has stopped it because another rank failed, that one has said why; so it is, too, where this rank
    was just about to end because it lost the other."""
    broken, failing = isinstance(stop, BrokenPipeError), isinstance(stop.__context__, HpcnnError)
    os._exit(1 if broken else stopped(stop, speak=comm.rank == 0 and not (failing or getattr(stop, "told", False))))


def abort(comm: Any, error: BaseException, words: str, status: int, details: str = "") -> int:
    """End all ranks at once: the others may be waiting for this one in a collective that it will never enter.

    An error's notes say what the rank was doing."""
    where = ", ".join([f"rank {comm.rank} on {socket.gethostname()}", *getattr(error, "__notes__", [])])
    print(f"hpcnn: {where}: {words}\n{details}", end="", file=sys.stderr, flush=True)
    if comm.size > 1:
        time.sleep(SECONDS_TO_SPEAK)
        comm.Abort(status)
    return status
