"""trace.json is what Perfetto opens: complete events in microseconds on one clock."""

from __future__ import annotations

import json

from hpcnn.records.trace import trace_document


def test_events_of_two_hosts_stand_on_rank_0s_clock() -> None:
    ranks = [
        {"rank": 0, "host": "a", "offset": 0.0, "error": 0.0,
         "events": [("load", 100.0, 100.5), ("forward", 100.5, 101.0)]},
        {"rank": 1, "host": "b", "offset": 90.0, "error": 1e-5, "events": [("load", 9.75, 10.25)]},
    ]  # fmt: skip
    document = json.loads(json.dumps(trace_document(ranks)))
    found = [
        (event["pid"], event["name"], event["ts"], event["dur"])
        for event in document["traceEvents"]
        if event["ph"] == "X"
    ]
    # Rank 1 began first: 9.75 s + 90 s is a quarter of a second before rank 0's 100 s.
    assert found == [(0, "load", 250e3, 500e3), (0, "forward", 750e3, 500e3), (1, "load", 0.0, 500e3)]
    names = {event["pid"]: event["args"]["name"] for event in document["traceEvents"] if event["ph"] == "M"}
    assert names == {0: "rank 0 on a", 1: "rank 1 on b"}
    assert document["otherData"]["clock_error_seconds"] == {"rank 0": 0.0, "rank 1": 1e-5}
