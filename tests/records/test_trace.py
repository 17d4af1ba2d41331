"""trace.json is what Perfetto opens: slices in microseconds on one clock, and arrows between those of a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.records.clocks import Reading
from hpcnn.records.phases import PHASES, Event
from hpcnn.records.trace import RankTrace, trace_document, trace_text
from tests.records.flows import flows_of, names_of, slices_of

SENDS = {"S0.0": "A1.0", "S0.1": "A1.1", "T1.0": "G0.0", "T1.1": "G0.1"}
STILL = [Reading(0.0, 0.0, 0.0)]


def traced(rank: int, *events: tuple[Any, ...], **more: Any) -> RankTrace:
    settings = {"rank": rank, "host": "a", "readings": STILL, "sends": SENDS, **more}
    return RankTrace(events=[Event(*event) for event in events], **settings)


def test_slices_of_two_hosts_stand_on_rank_0s_clock_each_in_the_row_of_its_phase() -> None:
    document = trace_document([
        traced(0, ("load", 100.0, 100.5), ("forward", 100.5, 101.0)),
        traced(1, ("load", 9.75, 10.25), host="b", place="replica 0, stage 1", readings=[Reading(9.0, 90.0, 1e-5)]),
    ])  # fmt: skip
    found = [(one["pid"], one["name"], one["ts"], one["dur"]) for one in slices_of(document)]
    # Rank 1 began first: 9.75 s + 90 s is a quarter of a second before rank 0's 100 s.
    assert found == [(0, "load", 250e3, 500e3), (0, "forward", 750e3, 500e3), (1, "load", 0.0, 500e3)]
    assert names_of(document) == {0: "rank 0 on a", 1: "rank 1 on b, replica 0, stage 1"}
    rows = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in document["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert all(rows[one["pid"], one["tid"]] == one["cat"] for one in slices_of(document))
    assert list(rows.values()) == ["load", "forward", "load"]


def test_a_clock_that_drifts_is_followed_and_its_drift_stated() -> None:
    readings = [Reading(100.0, -50.0, 1e-3), Reading(200.0, -49.9, 2e-3)]
    document = trace_document([
        traced(0, ("load", 50.0, 150.0)),
        traced(1, ("load", 100.0, 150.0), ("forward", 150.0, 200.0), readings=readings),
    ])  # fmt: skip
    forward = slices_of(document)[2]
    assert (forward["ts"], forward["dur"]) == (pytest.approx(50.05e6), pytest.approx(50.05e6))
    clock = document["otherData"]["clocks"]["rank 1"]
    assert (clock["readings"], clock["offset_seconds"], clock["error_seconds"]) == (2, -49.9, 2e-3)
    assert (clock["drift_ppm"], clock["drift_error_ppm"]) == (pytest.approx(1000), pytest.approx(30))
    assert document["otherData"]["clocks"]["rank 0"]["drift_ppm"] is None
    assert "rank 0" in document["otherData"]["clock"]


def test_a_message_is_an_arrow_from_the_slice_that_sent_to_the_one_that_received() -> None:
    document = trace_document([
        traced(0, ("forward", 0.0, 1.0, "F0.0", 4), ("communicate", 1.0, 1.5, "S0.0", 4)),
        traced(1, ("wait", 0.0, 2.0, "A1.0", 4), ("communicate", 2.0, 3.0, "A1.0", 4), ("forward", 3.0, 4.0)),
    ])  # fmt: skip
    (flow,) = flows_of(document)
    assert (flow.name, flow.send["name"], flow.accept["name"]) == ("S0.0 to A1.0", "S0.0", "A1.0")
    assert (flow.send["pid"], flow.accept["pid"], flow.accept["cat"]) == (0, 1, "communicate")
    assert document["otherData"]["messages"] == {"count": 1, "without_other_end": 0, "fastest_seconds": 2.0}
    assert flow.send["args"] == {"step": 4}


def test_messages_of_other_replicas_and_steps_do_not_meet_and_lone_ends_are_counted() -> None:
    def sends(rank: int, replica: int, *steps: int) -> RankTrace:
        return traced(rank, *(("communicate", step, step + 0.5, "S0.0", step) for step in steps), replica=replica)

    def accepts(rank: int, replica: int, *steps: int) -> RankTrace:
        return traced(rank, *(("wait", step, step + 0.9, "A1.0", step) for step in steps), replica=replica)

    document = trace_document([sends(0, 0, 1, 2, 3), accepts(1, 0, 1, 3), sends(2, 1, 2), accepts(3, 1, 2, 5)])
    found = sorted((flow.send["pid"], flow.accept["pid"], flow.send["args"]["step"]) for flow in flows_of(document))
    assert found == [(0, 1, 1), (0, 1, 3), (2, 3, 2)]
    assert [flow.accept["args"]["step"] for flow in flows_of(document)] == [
        flow.send["args"]["step"] for flow in flows_of(document)
    ]
    assert document["otherData"]["messages"]["count"] == 3
    assert document["otherData"]["messages"]["without_other_end"] == 2


def test_messages_of_a_channel_that_come_again_in_a_step_are_matched_in_their_order() -> None:
    document = trace_document([
        traced(0, ("communicate", 0.0, 0.1, "S0.0", 1), ("other", 0.1, 1.0), ("communicate", 1.0, 1.1, "S0.0", 1)),
        traced(1, ("wait", 0.0, 0.5, "A1.0", 1), ("other", 0.5, 1.0), ("wait", 1.0, 2.0, "A1.0", 1)),
    ])  # fmt: skip
    found = [(flow.send["ts"], flow.accept["ts"]) for flow in flows_of(document)]
    assert found == [(0.0, 0.0), (1e6, 1e6)]


LENGTHS = st.floats(0, 1e3, allow_subnormal=False)
PIECES = st.lists(
    st.tuples(st.sampled_from(PHASES), LENGTHS, st.sampled_from(["", *SENDS, *SENDS.values()])), max_size=20
)


@given(st.lists(PIECES, min_size=1, max_size=4))
def test_any_trace_is_json_whose_arrows_start_and_end_in_slices(ranks: list[list[tuple[str, float, str]]]) -> None:
    made = []
    for rank, pieces in enumerate(ranks):
        now, events = 0.0, []
        for phase, length, text in pieces:
            events.append((phase, now, now + length, text, 0))
            now += length
        made.append(traced(rank, *events, replica=rank // 2))
    document = trace_document(made)
    text = trace_text(document)
    assert json.loads(text) == json.loads(json.dumps(document))
    assert sum(line.startswith('{"ph":') for line in text.splitlines()) == len(document["traceEvents"])
    assert len(flows_of(document)) == document["otherData"]["messages"]["count"]
