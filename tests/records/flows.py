"""A trace document as its viewers read it: flows bound to the slices around their ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Flow:
    name: str
    send: Mapping[str, Any]
    accept: Mapping[str, Any]


def slices_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def names_of(document: Mapping[str, Any]) -> dict[int, str]:
    """Of the processes, which are ranks."""
    return {event["pid"]: event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"}


def flows_of(document: Mapping[str, Any]) -> list[Flow]:
    """Each from an "s" to the "f" of the same id, which binds to what encloses it; asserts that both are in slices."""
    rows: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for one in slices_of(document):
        rows[one["pid"], one["tid"]].append(one)

    def around(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        found = [
            one
            for one in rows[event["pid"], event["tid"]]
            if one["ts"] <= event["ts"] <= one["ts"] + one["dur"] and one["name"] == name
        ]
        assert found, f"{event} is in no slice of {name}"
        return found[0]

    starts = {event["id"]: event for event in document["traceEvents"] if event["ph"] == "s"}
    ends = {event["id"]: event for event in document["traceEvents"] if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    flows = []
    for number, start in starts.items():
        end = ends[number]
        assert end["bp"] == "e"
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        send, accept = start["name"].split(" to ")
        flows.append(Flow(start["name"], around(start, send), around(end, accept)))
    return flows
