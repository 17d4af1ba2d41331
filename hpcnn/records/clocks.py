"""One clock for all ranks: how far each host's monotonic clock is from rank 0's.

Waiting and traces compare times of different hosts. Cristian's method: rank 0 is asked for its time, and the answer
with the shortest round trip is taken to be from the middle of it; the error is at most half that round trip.
"""

from __future__ import annotations

import time
from typing import Any

EXCHANGES = 12


def clock_offset(comm: Any) -> tuple[float, float]:
    """Collective. (seconds to add to this rank's `time.monotonic()` to get rank 0's, half the best round trip)."""
    if comm.size == 1:
        return 0.0, 0.0
    import numpy as np

    answer = np.empty(1, dtype=np.float64)
    if comm.rank == 0:
        for other in range(1, comm.size):
            for _ in range(EXCHANGES):
                comm.Recv(answer, source=other)
                answer[0] = time.monotonic()
                comm.Send(answer, dest=other)
        return 0.0, 0.0
    best_offset, best_half = 0.0, float("inf")
    for _ in range(EXCHANGES):
        asked = time.monotonic()
        comm.Send(answer, dest=0)
        comm.Recv(answer, source=0)
        half = (time.monotonic() - asked) / 2
        if half < best_half:
            best_offset, best_half = float(answer[0]) - (asked + half), half
    return best_offset, best_half
