"""trace.json: what every rank did, on rank 0's clock, in the trace event format that Perfetto opens.

A rank is a process of the trace, each of its phases a row in it; a message is an arrow from the operation that sent it
to the one that received it. Whoever makes the trace says which operations are the two ends of a message.

Format: "Trace Event Format", Google, 2016: complete events ("X") and flows ("s" to "f"), times in microseconds.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpcnn.records.clocks import ClockReadings, Reading
from hpcnn.records.phases import MEANWHILE, PHASES, Event

CLOCK = (
    "times are those of rank 0's monotonic clock; those of other ranks are taken to it by offsets that were read "
    "before the first epoch, after each and at the end, and by the line between two of them"
)
"""Said in the trace itself."""
INSIDE = 0.5
"""An arrow ends at most so many microseconds before its slice does: at the very end, viewers bind it to the next."""


@dataclass(frozen=True, kw_only=True)
class RankTrace:
    """What one rank hands to rank 0. `events`, and those of `meanwhile` beside them, are in its own seconds, aligned by
    `readings`.

    `sends`: of each operation that sends, the operation that receives it on another rank of the same `replica`.
    """

    rank: int
    host: str
    place: str = ""
    replica: int = 0
    events: Sequence[Event]
    readings: Sequence[Reading]
    meanwhile: Sequence[Event] = ()
    sends: Mapping[str, str] = field(default_factory=dict)


class Span(NamedTuple):
    """An operation from its first piece to its last, microseconds; the phases are those of these two."""

    rank: int
    first_phase: str
    since: float
    last_phase: str
    last_since: float
    until: float


Spans = dict[tuple[int, int, str], list[Span]]
"""By replica, step and text; several where an operation was carried out again in the same step, in order."""


def trace_document(ranks: Sequence[RankTrace]) -> dict[str, Any]:
    """The JSON document: `traceEvents`, and in `otherData` how exact the times are and how many messages there were."""
    aligned = {rank.rank: _aligned(rank, rank.events) for rank in ranks}
    begin = min((events[0].since for events in aligned.values() if events), default=0.0)
    events: list[dict[str, Any]] = []
    spans: Spans = defaultdict(list)
    for rank in ranks:
        mine, beside = (
            [event._replace(since=(event.since - begin) * 1e6, until=(event.until - begin) * 1e6) for event in some]
            for some in (aligned[rank.rank], _aligned(rank, rank.meanwhile))
        )
        events += _names(rank, {event.phase for event in (*mine, *beside)})
        events += [_slice(rank.rank, event) for event in (*mine, *beside)]
        for step, text, span in _spans(rank.rank, mine):
            spans[rank.replica, step, text].append(span)
    arrows, messages = _arrows(spans, {send: accept for rank in ranks for send, accept in rank.sends.items()})
    other = {"clock": CLOCK, "clocks": {f"rank {rank.rank}": _clock(rank) for rank in ranks}, "messages": messages}
    return {"traceEvents": events + arrows, "displayTimeUnit": "ms", "otherData": other}


def trace_text(document: Mapping[str, Any]) -> str:
    """The document as JSON, an event a line: long ones can be searched with grep."""
    rest = {name: value for name, value in document.items() if name != "traceEvents"}
    lines = ",\n".join(json.dumps(event, separators=(",", ":"), allow_nan=False) for event in document["traceEvents"])
    return f'{{"traceEvents": [\n{lines}\n],\n{json.dumps(rest, indent=1, allow_nan=False)[1:]}\n'


def _aligned(rank: RankTrace, events: Sequence[Event]) -> list[Event]:
    """On rank 0's clock. Pieces that follow each other still do."""
    clocks = ClockReadings(rank.readings)
    since = clocks.offset_at([event.since for event in events]).tolist()
    until = clocks.offset_at([event.until for event in events]).tolist()
    return [
        event._replace(since=event.since + one, until=event.until + other)
        for event, one, other in zip(events, since, until, strict=True)
    ]


_ROWS = (*PHASES, MEANWHILE)


def _row(phase: str) -> int:
    return _ROWS.index(phase)


def _names(rank: RankTrace, phases: set[str]) -> Iterator[dict[str, Any]]:
    def named(what: str, value: Any, row: int = 0) -> dict[str, Any]:
        key = "sort_index" if what.endswith("index") else "name"
        return {"ph": "M", "pid": rank.rank, "tid": row, "name": what, "args": {key: value}}

    yield named("process_name", f"rank {rank.rank} on {rank.host}" + (f", {rank.place}" if rank.place else ""))
    yield named("process_sort_index", rank.rank)
    for row in sorted(map(_row, phases)):
        yield named("thread_name", _ROWS[row], row)
        yield named("thread_sort_index", row, row)


def _slice(rank: int, event: Event) -> dict[str, Any]:
    found = {
        "ph": "X", "pid": rank, "tid": _row(event.phase), "cat": event.phase, "name": event.operation or event.phase,
        "ts": event.since, "dur": event.until - event.since,
    }  # fmt: skip
    return {**found, "args": {"step": event.step}} if event.operation else found


def _spans(rank: int, events: Sequence[Event]) -> Iterator[tuple[int, str, Span]]:
    """(step, text, span) of each operation: pieces that follow each other are one."""
    for (step, text), group in itertools.groupby(events, key=lambda event: (event.step, event.operation)):
        if text:
            pieces = list(group)
            first, last = pieces[0], pieces[-1]
            yield step, text, Span(rank, first.phase, first.since, last.phase, last.since, last.until)


def _arrows(spans: Spans, sends: Mapping[str, str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Flow events of all messages, and how many there are, how many ends found no other, and the fastest one."""
    arrows: list[dict[str, Any]] = []
    lone, fastest = 0, None
    for key, sent in spans.items():
        replica, step, text = key
        if text not in sends:
            continue
        accepted = spans.get((replica, step, sends[text]), [])
        lone += abs(len(sent) - len(accepted))
        for send, accept in zip(sent, accepted, strict=False):
            name = f"{text} to {sends[text]}"
            arrows += _arrow(len(arrows) // 2 + 1, name, send, accept)
            seconds = (accept.until - send.since) / 1e6
            fastest = seconds if fastest is None else min(fastest, seconds)
    accepts = set(sends.values())
    senders = {accept: send for send, accept in sends.items()}
    lone += sum(
        len(found)
        for (replica, step, text), found in spans.items()
        if text in accepts and (replica, step, senders[text]) not in spans
    )
    return arrows, {"count": len(arrows) // 2, "without_other_end": lone, "fastest_seconds": fastest}


def _arrow(number: int, name: str, send: Span, accept: Span) -> Iterator[dict[str, Any]]:
    both = {"cat": "message", "name": name, "id": number}
    yield {"ph": "s", **both, "pid": send.rank, "tid": _row(send.first_phase), "ts": send.since}
    end = accept.until - min(INSIDE, (accept.until - accept.last_since) / 2)
    yield {"ph": "f", "bp": "e", **both, "pid": accept.rank, "tid": _row(accept.last_phase), "ts": end}


def _clock(rank: RankTrace) -> dict[str, Any]:
    """How this rank's clock stood to rank 0's. A drift smaller than its error was not seen."""
    clocks = ClockReadings(rank.readings)
    drift = clocks.drift
    return {
        "readings": len(rank.readings),
        "offset_seconds": rank.readings[-1].offset,
        "error_seconds": clocks.error,
        "drift_ppm": None if drift is None else drift.rate * 1e6,
        "drift_error_ppm": None if drift is None else drift.error * 1e6,
    }
