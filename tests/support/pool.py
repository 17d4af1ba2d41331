"""Real MPI ranks that stay for a whole pytest session, for what runs at many rank counts, hundreds of times.

An mpirun for each call would take seconds. Here one is started when ranks are first asked for; the pytest process sends
a function to as many of them as a call needs, over a local socket on which ranks without work sleep.

    outcomes = on_ranks(3, function, argument, option=value)

calls function(comm, argument, option=value) on three ranks. It has to be a function of a module, as pickle wants.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any

from tests.support.mpi import GRACE_SECONDS, SETTINGS, end_session, mpirun, start_session

RANKS = 8
START_SECONDS = 120.0
LIMIT_SECONDS = 60.0
KEY = "HPCNN_TEST_POOL_KEY"


def on_ranks(
    size: int, function: Callable[..., Any], *args: Any, limit: float = LIMIT_SECONDS, **options: Any
) -> list[Any]:
    """`function(comm, *args, **options)` on `size` ranks (1 to 8); each rank's result, or the exception it raised.

    Raises TimeoutError if a rank has not answered after `limit` seconds, and RuntimeError if one has died. Either ends
    all ranks; the next call starts others.
    """
    global _pool
    message = pickle.dumps((size, function, args, options))
    if _pool is not None and not _pool.alive:
        end()
    if _pool is None:
        _pool = Pool()
    try:
        return _pool.call(size, message, limit)
    except BaseException:
        _pool.end(in_order=False)
        _pool = None
        raise


def results(outcomes: Iterable[Any]) -> list[Any]:
    """The results of all ranks; raises the first exception, whose notes tell the rank and its traceback."""
    for outcome in (outcomes := list(outcomes)):
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes


@atexit.register
def end() -> None:
    """End the ranks, if there are any."""
    global _pool
    if _pool is not None:
        _pool.end()
        _pool = None


class Pool:
    """One mpirun of `RANKS` ranks, each with a connection to this process."""

    def __init__(self) -> None:
        key = secrets.token_bytes(32)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
        self._connections: dict[int, Connection] = {}
        with (
            tempfile.TemporaryDirectory(prefix="pool-") as folder,
            Listener(address := f"{folder}/socket", "AF_UNIX", backlog=RANKS, authkey=key) as listener,
        ):
            self._process = start_session(
                mpirun(RANKS, ["-m", "tests.support.pool", address]),
                env={**SETTINGS, KEY: key.hex()},
                stdout=self._said,
                stderr=subprocess.STDOUT,
            )
            try:
                self._accept(listener)
            except BaseException:
                self.end(in_order=False)
                raise

    @property
    def alive(self) -> bool:
        """Whether all ranks are; to be asked between calls, when only an end can come through a connection."""
        return self._process.poll() is None and not wait(list(self._connections.values()), 0)

    def call(self, size: int, message: bytes, limit: float) -> list[Any]:
        """Give a pickled (size, function, arguments, options) to the first `size` ranks, and await their outcomes."""
        deadline = time.monotonic() + limit
        waiting = {self._connections[rank]: rank for rank in range(size)}
        outcomes: dict[int, Any] = {}
        try:
            for connection in waiting:
                connection.send_bytes(message)
            while waiting:
                ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
                if not ready:
                    late, others = sorted(waiting.values()), dict(sorted(outcomes.items()))
                    raise TimeoutError(f"ranks {late} gave no answer in {limit} s; answers: {others}\n{self._words()}")
                for connection in ready:
                    outcomes[waiting[connection]] = connection.recv()
                    del waiting[connection]
        except (EOFError, ConnectionError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
            raise RuntimeError(f"a rank has died\n{self._words()}") from error
        return [outcomes[rank] for rank in range(size)]

    def end(self, in_order: bool = True) -> None:
        for connection in self._connections.values():
            connection.close()
        if in_order:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
        end_session(self._process)
        self._said.close()

    def _accept(self, listener: Listener) -> None:
        deadline = time.monotonic() + START_SECONDS
        listener._listener._socket.settimeout(0.5)  # accept() by itself knows no limit
        while len(self._connections) < RANKS:
            try:
                connection = listener.accept()
                self._connections[connection.recv()] = connection
            except (TimeoutError, EOFError) as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the ranks did not start\n{self._words()}") from error

    def _words(self) -> str:
        """What mpirun and the ranks have said so far."""
        self._said.seek(0)
        return self._said.read().decode(errors="backslashreplace")


_pool: Pool | None = None


def serve(address: str) -> None:
    """What a rank does: carry out one call after another until the pytest process closes the connection."""
    from mpi4py import MPI

    warnings.filterwarnings("error", module="hpcnn")  # as in pyproject.toml
    world = MPI.COMM_WORLD
    groups = [world.Split(0 if world.rank < size else MPI.UNDEFINED) for size in range(1, world.size + 1)]
    with Client(address, family="AF_UNIX", authkey=bytes.fromhex(os.environ.pop(KEY))) as connection:
        connection.send(world.rank)
        calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_receive, args=(connection, calls), daemon=True).start()
        while message := calls.get():
            connection.send_bytes(_outcome(message, groups))


def _receive(connection: Connection, calls: queue.SimpleQueue[bytes]) -> None:
    """Hand calls to the main thread; when the connection ends, so does this rank, whatever it is doing."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            calls.put(connection.recv_bytes())
    calls.put(b"")
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _outcome(message: bytes, groups: list[Any]) -> bytes:
    """The pickled result or exception of a call."""
    rank = groups[-1].rank
    try:
        size, function, args, options = pickle.loads(message)
        # Never freed: MPI would use its context again, and a call read a message that another has left unread.
        comm = groups[size - 1].Dup()
        return pickle.dumps(function(comm, *args, **options))
    except Exception as error:
        words = f"on rank {rank}:\n{traceback.format_exc()}"
        error.add_note(words)
        try:
            message = pickle.dumps(error)
            pickle.loads(message)  # which fails for a class whose arguments are not those of Exception
            return message
        except Exception:
            return pickle.dumps(RuntimeError(words))


if __name__ == "__main__":
    serve(sys.argv[1])
