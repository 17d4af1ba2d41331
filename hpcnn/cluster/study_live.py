"""How a study goes, for people: a line a cell, and on a terminal one that changes below them.

[ 5/24] torch data, 2 ranks, batch 64, repeat 1: step 12/46, loss 0.5123; about 3 min left
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcnn.errors import ResultsError
from hpcnn.records.state import read_json
from hpcnn.studies.cells import RUNS, Cell
from hpcnn.training.progress import say, terminal_columns


class Live:
    """`cells`: those to be seen through, in order. `folder`: of the study."""

    def __init__(self, folder: Path, cells: Sequence[Cell]) -> None:
        self._folder, self._cells = folder, cells
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._open = [cell.group for cell in cells]
        self._number, self._shown = 0, False
        self._since = time.monotonic()

    def begin(self, cell: Cell) -> None:
        self._number += 1
        self._since = time.monotonic()
        self._open.remove(cell.group)
        self.look(cell)

    def look(self, cell: Cell) -> None:
        """On a terminal: where the cell's run is, and how long all of them will yet take."""
        columns = terminal_columns()
        if columns is not None:
            line = f"{self._name(cell)}: {step_words(self._folder / RUNS / cell.key)}{self._left(cell)}"
            self._draw(line[: columns - 1] if columns else line)

    def end(self, cell: Cell) -> None:
        """The cell's own line."""
        seconds = time.monotonic() - self._since
        if cell.state == "done":
            self._seconds[cell.group].append(seconds)
        if self._shown:
            self._draw("")
        words = f" in {seconds:.1f} s" if cell.state == "done" else f": {cell.reason}" if cell.reason else ""
        say(f"{self._name(cell)}: {cell.state}{words}")

    def close(self) -> None:
        if self._shown:
            self._draw("")

    def seconds_left(self, cell: Cell, spent: float) -> float | None:
        """Estimated from runs of the same cell, else from all; None before the first has ended."""
        known = [seconds for some in self._seconds.values() for seconds in some]
        if not known:
            return None
        usual = statistics.median(known)
        of = {group: statistics.median(some) for group, some in self._seconds.items()}
        now = max(of.get(cell.group, usual) - spent, 0.0)
        return now + sum(of.get(group, usual) for group in self._open)

    def _name(self, cell: Cell) -> str:
        width = len(str(len(self._cells)))
        return f"[{self._number:>{width}}/{len(self._cells)}] {cell.label}, repeat {cell.repeat}"

    def _left(self, cell: Cell) -> str:
        left = self.seconds_left(cell, time.monotonic() - self._since)
        return "" if left is None else f"; about {duration(left)} left"

    def _draw(self, line: str) -> None:
        self._shown = bool(line)
        with contextlib.suppress(OSError):
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def step_words(folder: Path) -> str:
    """Of the newest run of a cell, from its first rank's heartbeat: the step and the loss that it had last."""
    records = sorted(folder.glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    if not records:
        return "starting"
    try:
        manifest, beat = read_json(records[-1]), read_json(records[-1].parent / "ranks" / "r0.json")
    except ResultsError:
        return "starting"
    total, loss = steps_in_all(manifest), beat.get("loss")
    step = f"step {beat.get('step')}" + ("" if total is None else f"/{total}")
    return step if loss is None else f"{step}, loss {loss:.4f}"


def steps_in_all(manifest: Mapping[str, Any]) -> int | None:
    """That a run does, as its run.json tells before the first one."""
    config, an_epoch = manifest.get("config"), manifest.get("steps_per_epoch")
    if not isinstance(config, dict) or type(an_epoch) is not int or type(config.get("epochs")) is not int:
        return None
    steps = int(config["epochs"]) * an_epoch
    return min(steps, int(config["max_steps"])) if config.get("max_steps") else steps


def duration(seconds: float) -> str:
    """For people: 40 s, 3 min, 1 h 20 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
