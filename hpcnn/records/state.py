"""The state of a run: run.json says what rank 0 last knew, the heartbeats what became of the ranks."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcnn.errors import ResultsError

STALE_BEATS = 5
"""Beats that may be missed (a loaded file system) before a rank counts as dead."""


@dataclass(frozen=True)
class RunState:
    """`state`: running, completed, failed, stopped or died. `words`: for people, who and where. `rank`: whose words."""

    state: str
    words: str = ""
    rank: int | None = None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from `path`. Raises ResultsError where it is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultsError(f"{path}: no such file; is {path.parent} the folder of a run?") from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ResultsError(f"{path}: is not a JSON object")
    return value


def read_state(folder: Path, now: float | None = None) -> RunState:
    """State of the run in `folder` at `now` (seconds since 1970, default: the clock's)."""
    manifest = read_json(folder / "run.json")
    state = str(manifest.get("state", "unknown"))
    if state != "running":
        return RunState(state, str(manifest.get("words", "")))
    beats = [_read_beat(path) for path in sorted((folder / "ranks").glob("r*.json"))]
    clock = time.time() if now is None else now
    # A rank that has completed beats no more while others still write: it is not dead.
    waited_for = [beat for beat in beats if beat["state"] == "running"] or beats
    stale = [beat for beat in waited_for if clock - float(beat["time"]) > STALE_BEATS * float(beat["interval"])]
    silent = min(stale, key=lambda beat: float(beat["time"]), default=None)
    for wanted in ("failed", "stopped"):
        ended = [beat for beat in beats if beat.get("state") == wanted]
        if ended:
            first = min(ended, key=lambda beat: float(beat["time"]))
            words = _seen(first)
            if wanted == "stopped" and silent and silent["state"] == "running":
                # A launcher stops the others when one is killed.
                words += f" (without last words, last seen: {_seen(silent)})"
            return RunState(wanted, words, int(first["rank"]))
    if not beats:
        return RunState("died", "no rank left a heartbeat")
    if silent:
        return RunState("died", "last seen: " + _seen(silent), int(silent["rank"]))
    return RunState("running")


def _read_beat(path: Path) -> dict[str, Any]:
    beat = read_json(path)
    for key in ("rank", "epoch", "step", "time", "interval"):
        if not isinstance(beat.get(key), (int, float)):
            raise ResultsError(f"{path}: is not a heartbeat: {key!r} is {beat.get(key)!r}, not a number")
    return {"state": "", "host": "?", "operation": "?", **beat}


def _seen(beat: dict[str, Any]) -> str:
    where = f"rank {beat['rank']} on {beat['host']}, {beat['operation']}, epoch {beat['epoch']}, step {beat['step']}"
    return where + (f": {beat['words']}" if beat.get("words") else "")
