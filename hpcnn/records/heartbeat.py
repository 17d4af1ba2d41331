"""Each rank's small file `ranks/rN.json`: that it lives, what it is doing, and its last words.

A thread writes it, so a rank that computes for a minute still beats; a rank that is killed or stopped goes stale, and
`since` tells for how long the same operation has been running.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpcnn.errors import ResultsError
from hpcnn.records.files import write_json

INTERVAL = 2.0
"""Seconds between beats."""


class Heartbeat:
    """Beats from `start` until `end`. `doing` is cheap enough for every operation: it only sets fields."""

    def __init__(self, folder: Path, rank: int, interval: float = INTERVAL) -> None:
        self.path = folder / "ranks" / f"r{rank}.json"
        self._fields: dict[str, Any] = {
            "rank": rank, "host": socket.gethostname(), "pid": os.getpid(), "interval": interval,
            "state": "running", "operation": "start", "epoch": 0, "step": 0, "since": time.time(), "words": "",
        }  # fmt: skip
        self.detail: Callable[[], str] = str
        """Asked with each beat what exactly the operation is doing; "" where it has no parts."""
        self.loss: float | None = None
        """Of the last step, for whoever watches the run."""
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._write()
        self._thread.start()

    def doing(self, operation: str, epoch: int, step: int) -> None:
        """Remember what runs now; written with the next beat."""
        self._fields.update(operation=operation, epoch=epoch, step=step, since=time.time())

    def end(self, state: str, words: str = "") -> None:
        """Last beat: completed, failed (with words) or stopped."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._fields.update(state=state, words=words)
        self._write()

    def _beat(self) -> None:
        while not self._stop.wait(self._fields["interval"]):
            self._write()

    def _write(self) -> None:
        operation = ", ".join(filter(None, (self._fields["operation"], self.detail())))
        with self._lock:
            try:
                write_json(self.path, {**self._fields, "operation": operation, "loss": self.loss, "time": time.time()})
            except ResultsError:
                # A beat that cannot be written must not end the training; the reader sees it go stale.
                return
