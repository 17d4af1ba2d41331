"""One clock for all ranks: how far each host's monotonic clock is from rank 0's.

Waiting and traces compare times of different hosts. Cristian's method: rank 0 is asked for its time, and the answer
with the shortest round trip is taken to be from the middle of it; the error is at most half that round trip.
Clocks also run at rates of their own (some 1e-6 to 1e-4 apart), so the offset is read again and again, and between two
readings it lies on the line between them.

F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3 (1989).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXCHANGES = 12


class Reading(NamedTuple):
    """At `at` of a rank's own clock, `offset` was to be added to get rank 0's, give or take `error`; seconds."""

    at: float
    offset: float
    error: float


@dataclass(frozen=True)
class Drift:
    """Seconds that rank 0's clock gains on a rank's in each second of the rank's own, give or take `error`."""

    rate: float
    error: float


class ClockReadings:
    """What a rank knows of its clock against rank 0's: readings in the order of time, at least one before a question.

    `measure` is called where ranks meet anyway: before the first epoch and at the end of each.
    """

    def __init__(self, readings: Sequence[Reading] = ()) -> None:
        self.readings = list(readings)

    def measure(self, comm: Any) -> Reading:
        """Collective. Read the clocks once more."""
        self.readings.append(read_clocks(comm))
        return self.readings[-1]

    def offset_at(self, times: Any) -> NDArray[np.float64]:
        """Seconds to add to `times` of this rank's clock to get rank 0's; beyond the readings, the nearest one's."""
        import numpy as np

        known = [reading.at for reading in self.readings]
        return np.interp(np.asarray(times, np.float64), known, [reading.offset for reading in self.readings])

    @property
    def error(self) -> float:
        """Seconds by which an offset may be wrong: the largest of the readings'."""
        return max(reading.error for reading in self.readings)

    @property
    def drift(self) -> Drift | None:
        """From the first reading to the last; None of a single one."""
        first, last = self.readings[0], self.readings[-1]
        apart = last.at - first.at
        if apart <= 0:
            return None
        return Drift((last.offset - first.offset) / apart, (first.error + last.error) / apart)


def read_clocks(comm: Any) -> Reading:
    """Collective. This rank's `time.monotonic()` against rank 0's; `error` is half the best round trip."""
    here = Reading(time.monotonic(), 0.0, 0.0)
    if comm.size == 1:
        return here
    import numpy as np

    answer = np.empty(1, dtype=np.float64)
    if comm.rank == 0:
        for other in range(1, comm.size):
            for _ in range(EXCHANGES):
                comm.Recv(answer, source=other)
                answer[0] = time.monotonic()
                comm.Send(answer, dest=other)
        return here
    best = Reading(here.at, 0.0, float("inf"))
    for _ in range(EXCHANGES):
        asked = time.monotonic()
        comm.Send(answer, dest=0)
        comm.Recv(answer, source=0)
        half = (time.monotonic() - asked) / 2
        if half < best.error:
            best = Reading(asked + half, float(answer[0]) - (asked + half), half)
    return best
