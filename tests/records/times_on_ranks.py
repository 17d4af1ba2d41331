"""Run on several ranks by test_times_mpi: one rank comes late to a collective; each prints what it measured as JSON.

Arguments: the late rank, the seconds it is late, and how far (seconds) each host's clock is from the host before it.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from mpi4py import MPI

from hpcnn.records.clocks import ClockReadings
from hpcnn.records.manifest import libmpi_loaded
from hpcnn.records.phases import PhaseClock

comm = MPI.COMM_WORLD
late, seconds, apart = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])

# Another host's monotonic clock began at another time; nothing else tells hosts apart here.
real = time.monotonic
time.monotonic = lambda: real() + apart * comm.rank

clocks = ClockReadings()
_, offset, error = clocks.measure(comm)
clock = PhaseClock(begin=time.monotonic())
clock.set_epoch(1)
values = np.full(1000, 1.0)
# Untimed: the first collective sets up connections.
comm.Allreduce(MPI.IN_PLACE, values)
for _ in range(2):
    clock.switch("forward")
    if comm.rank == late:
        time.sleep(seconds)
    with clock.collective(values.nbytes):
        comm.Allreduce(MPI.IN_PLACE, values)
clock.resolve_waits(comm, clocks)
before = clock.wall_seconds()
rows = clock.rows()
report = {
    "rank": comm.rank,
    "offset": offset,
    "error": error,
    "true_offset": -apart * comm.rank,
    "seconds": {phase: tally.seconds for epoch, phase, tally in rows if epoch == 1},
    "total": sum(tally.seconds for _, _, tally in rows),
    "bytes": sum(tally.bytes for _, _, tally in rows),
    "wall": [before, clock.wall_seconds()],
    "library": libmpi_loaded(),
}
reports = comm.gather(report)
if comm.rank == 0:
    print(json.dumps(reports))
