"""Jobs of the thread come in order, and a failure is told where it is waited for."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from hpcnn.parallel.reducers.worker import Worker


def test_jobs_are_done_in_order_on_another_thread() -> None:
    worker, found = Worker("test"), []
    gate = threading.Event()

    def note(number: int) -> None:
        found.append((number, threading.current_thread().name))

    worker.post(gate.wait)  # type: ignore[arg-type]
    waits = [worker.post(partial(note, number)) for number in range(50)]
    assert found == []
    gate.set()
    waits[-1].wait()
    worker.close()
    assert found == [(number, "test") for number in range(50)]


def test_a_failure_is_raised_for_its_job_and_those_after_it_which_are_not_done() -> None:
    worker, found = Worker("test"), []

    def fail() -> None:
        raise ValueError("broken")

    before = worker.post(lambda: found.append(1))
    failed = worker.post(fail)
    after = worker.post(lambda: found.append(2))
    before.wait()
    for job in (failed, after):
        with pytest.raises(ValueError, match="broken"):
            job.wait()
    worker.close()
    assert found == [1]
