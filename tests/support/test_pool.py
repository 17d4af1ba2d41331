"""The pool of ranks: real ranks of one communicator, outcomes that come back, and no rank that outlives its pytest."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.mpi import run_session
from tests.support.pool import RANKS, on_ranks, results

KILLED = """
import os
from tests.support import pool, test_pool
print(*pool.on_ranks(2, test_pool.pid), flush=True)
pool.on_ranks(2, test_pool.kill_and_wait, os.getpid())
"""


def pid(comm: Any) -> int:
    return os.getpid()


def describe(comm: Any, *args: Any, **options: Any) -> tuple[Any, ...]:
    return type(comm).__module__, comm.rank, comm.size, comm.allgather(os.getpid()), args, options


def fail_above(comm: Any, rank: int) -> int:
    if comm.rank > rank:
        raise KeyError(comm.rank)
    return 10 * int(comm.rank)


def send_unread(comm: Any) -> None:
    if comm.rank == 0:
        comm.send("old", dest=1)


def send_and_receive(comm: Any) -> str:
    if comm.rank == 0:
        comm.send("new", dest=1)
        return "sent"
    return str(comm.recv(source=0))


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one + two)


def give_what_pickle_refuses(comm: Any) -> object:
    if comm.rank == 2:
        raise OddError(1, 2)
    return (lambda: 1) if comm.rank else 1


def leave_the_others_waiting(comm: Any) -> None:
    if comm.rank == 1:
        raise KeyError("alone")
    comm.allgather(0)


def die(comm: Any) -> None:
    if comm.rank == 1:
        print("last words", flush=True)
        os._exit(7)
    comm.allgather(0)


def kill_and_wait(comm: Any, victim: int) -> None:
    if comm.rank == 0:
        os.kill(victim, signal.SIGKILL)
    comm.recv()


def await_end(pids: Iterable[int]) -> None:
    """Return once all have ended; the test's own limit is for a defect, and far."""
    deadline = time.monotonic() + 60
    while running := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < deadline, running
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """False once its last thread has ended, and with it its connections: the first may be a zombie before that."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


@pytest.mark.parametrize("size", range(1, RANKS + 1))
def test_a_function_runs_on_that_many_processes_of_one_mpi_communicator(size: int) -> None:
    outcomes = results(on_ranks(size, describe, "x", 2, option=3))
    pids = outcomes[0][3]
    assert outcomes == [("mpi4py.MPI", rank, size, pids, ("x", 2), {"option": 3}) for rank in range(size)]
    assert len({*pids, os.getpid()}) == size + 1


def test_ranks_stay_from_one_call_to_the_next() -> None:
    assert on_ranks(4, pid)[:2] == on_ranks(2, pid)


def test_each_rank_has_a_result_or_an_exception_with_the_traceback_that_it_had_there() -> None:
    first, second, third = outcomes = on_ranks(3, fail_above, 1)
    assert (first, second, repr(third)) == (0, 10, "KeyError(2)")
    assert third.__notes__[0].startswith("on rank 2:\nTraceback")
    assert "in fail_above" in third.__notes__[0]
    with pytest.raises(KeyError, match="2"):
        results(outcomes)


def test_a_message_that_one_call_leaves_unread_is_not_read_by_the_next() -> None:
    on_ranks(2, send_unread)
    assert on_ranks(2, send_and_receive) == ["sent", "new"]


def test_what_can_not_be_sent_is_an_error_and_the_ranks_stay() -> None:
    before = on_ranks(2, pid)
    with pytest.raises(Exception, match="lambda"):
        on_ranks(2, lambda comm: None)
    good, bad, odd = on_ranks(3, give_what_pickle_refuses)
    assert good == 1
    assert "lambda" in str(bad)
    assert "OddError: 3" in str(odd)
    assert on_ranks(2, pid) == before


def test_ranks_that_hang_are_ended_and_others_started() -> None:
    for limit in (0.5, 5, 50):  # until it leaves rank 1 the time to answer
        before = on_ranks(RANKS, pid)
        with pytest.raises(TimeoutError) as caught:
            on_ranks(3, leave_the_others_waiting, limit=limit)
        await_end(before)
        assert not {*on_ranks(3, pid)} & {*before}
        if "KeyError" in str(caught.value):
            break
    assert str(caught.value).startswith(f"ranks [0, 2] gave no answer in {limit} s; answers: {{1: KeyError('alone')}}")


def test_when_a_rank_dies_all_are_ended_and_others_started() -> None:
    before = on_ranks(RANKS, pid)
    with pytest.raises(RuntimeError, match=r"a rank has died\n[^$]*last words"):
        on_ranks(3, die)
    await_end(before)
    again = on_ranks(3, pid)
    os.kill(again[2], signal.SIGKILL)  # between calls
    await_end(again[2:])
    assert not {*on_ranks(3, pid)} & {*before, *again}


def test_ranks_end_with_the_process_that_called_them_even_in_the_middle_of_a_call() -> None:
    run = run_session([sys.executable, "-c", KILLED])
    pids = [int(word) for word in run.stdout.split()]
    assert (run.returncode, len(pids)) == (-signal.SIGKILL, 2), run.stderr
    await_end(pids)
