"""The trace of a run: what each rank hands over, and the two files that rank 0 makes of it."""

from __future__ import annotations

import socket
from typing import Any

from hpcnn.parallel.program import SENDING
from hpcnn.records.clocks import ClockReadings
from hpcnn.records.phases import PhaseClock
from hpcnn.records.run_folder import RunFolder
from hpcnn.records.trace import RankTrace, trace_document
from hpcnn.records.trace_picture import NAME, draw_timeline
from hpcnn.training.prepare import Prepared
from hpcnn.training.progress import say


def write_trace(
    folder: RunFolder | None, prepared: Prepared, comm: Any, clock: PhaseClock, clocks: ClockReadings
) -> None:
    """Collective, after the last waits were resolved. trace.json, and timeline.png where matplotlib is installed."""
    grid = prepared.grid
    replica, stage, _ = grid.place(comm.rank)
    mine = RankTrace(
        rank=comm.rank,
        host=socket.gethostname(),
        place=f"replica {replica}, stage {stage}" if grid.pp > 1 else "",
        replica=replica,
        events=clock.traced(),
        readings=clocks.readings,
        meanwhile=clock.meanwhile,
        sends={str(sent): str(sent.other_end) for sent in prepared.program if sent.kind in SENDING},
    )
    ranks = comm.gather(mine)
    if folder is None:
        return
    document = trace_document(ranks)
    folder.write_trace(document)
    try:
        draw_timeline(document, folder.path / NAME)
    except ImportError:
        say(f"{NAME} was left out: matplotlib is not installed; pip install matplotlib")
