"""A thread that works off jobs in their order while the rank computes, and sleeps where there are none.

Not the standard library's pool, whose threads an ending process waits for: a job may wait for ranks that are gone.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Job:
    """`error` is what it raised, or what one before it did, after which no other is done. `ended_at`: seconds of the
    monotonic clock."""

    work: Callable[[], None]
    ended: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    ended_at: float = 0.0

    def wait(self) -> float:
        """Until it has ended, and when that was; raises `error`."""
        self.ended.wait()
        if self.error is not None:
            raise self.error
        return self.ended_at


class Worker:
    """Jobs are done one after another."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def post(self, work: Callable[[], None]) -> Job:
        """Returns at once."""
        job = Job(work)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """After the jobs that are there."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        error: BaseException | None = None
        while (job := self._jobs.get()) is not None:
            try:
                if error is None:
                    job.work()
            except BaseException as raised:
                error = raised
            job.error, job.ended_at = error, time.monotonic()
            job.ended.set()
