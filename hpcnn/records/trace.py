"""trace.json: every rank's phases on rank 0's clock, in the trace event format that Perfetto and chrome://tracing open.

Format: "Trace Event Format", Google, 2016: complete events ("X"), times in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def trace_document(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`ranks`: per rank a dict with rank, host, offset, error (seconds) and events (phase, from, to in own seconds)."""
    begin = min(rank["events"][0][1] + rank["offset"] for rank in ranks)
    events: list[dict[str, Any]] = []
    for rank in ranks:
        name = f"rank {rank['rank']} on {rank['host']}"
        events.append({"ph": "M", "pid": rank["rank"], "tid": 0, "name": "process_name", "args": {"name": name}})
        for phase, since, until in rank["events"]:
            start = (since + rank["offset"] - begin) * 1e6
            length = (until - since) * 1e6
            events.append({"ph": "X", "pid": rank["rank"], "tid": 0, "name": phase, "ts": start, "dur": length})
    errors = {f"rank {rank['rank']}": rank["error"] for rank in ranks}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"clock_error_seconds": errors}}
