"""How a rank waits for others: it gives up its turn, and sleeps where somebody takes it, since ranks may share a core.

A sleep takes some 60 microseconds at least, and the core of one that sleeps takes longer to come back, most of all that
of a virtual machine, whose host may have lent it: a step of 250 rows took two ranks with a core each 4 % longer (median
of 5 pairs). Ranks that share a core lose more where one that waits keeps another from its turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

ALONE_SECONDS, SPIN_SECONDS, TURN_SECONDS = 0.1, 2e-4, 5e-4
"""How long a rank gives up its turn before it sleeps where nobody takes that turn, and where somebody does; and how
long one takes that somebody took."""
FIRST_SLEEP, LONGEST_SLEEP = 20e-6, 1e-3
"""Seconds; between them a sleep is a sixteenth of the wait so far, which is how late the end may be noticed."""


class Request(Protocol):
    """Something under way: of MPI, or of Horovod."""

    def Test(self) -> bool: ...


def wait_until(ready: Callable[[], bool], *, asleep: bool = False) -> None:
    """Look until it is `ready`. `asleep`: from the first moment on, as a thread does beside one that computes."""
    if ready():
        return
    began = now = time.monotonic()
    patience = 0.0 if asleep else ALONE_SECONDS
    while not ready():
        before, now = now, time.monotonic()
        waited = now - began
        if waited >= patience:
            time.sleep(min(max(waited / 16, FIRST_SLEEP), LONGEST_SLEEP))
            continue
        if now - before > TURN_SECONDS:
            patience = SPIN_SECONDS
        os.sched_yield()


def wait_asleep(request: Request) -> None:
    """Until `request` is complete; each look lets MPI move other messages too."""
    wait_until(request.Test, asleep=True)
