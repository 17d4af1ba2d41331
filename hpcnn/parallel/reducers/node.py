"""Ranks of one node add what lies in memory that all of them see: no message, each number read and written once.

Each rank adds its own slice of all ranks' arrays, rank after rank, and writes the sum into all of them: so every rank
gets the same bits, whoever came first. The memory is a file of /dev/shm without a name, gone with its last rank however
that ends; who has arrived, and who is through, is told by counters in it.

    rank 0   array 0 [ slice 0 | slice 1 ]   reads slice 0 of both, writes it into both
    rank 1   array 1 [ slice 0 | slice 1 ]   reads slice 1 of both, writes it into both
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.errors import BackendError
from hpcnn.parallel.reducers.contract import Message
from hpcnn.parallel.waiting import wait_until

LINE, PAGE = 64, 4096
"""Bytes that two ranks had better not write at once, and that memory is given by."""
BLOCK = 65_536
"""Numbers that are added at a time: as many of every rank stay in a core's cache until they are written."""

SHARED = "/dev/shm"
_LOCK = threading.Lock()

Between = Callable[[Message], None]


class NodeMemory:
    """A message of each rank of a node, and their sum. Collective over `comm`, whose ranks share memory.

    `parts`: slices that are added apart, by the first so many ranks (default: all); the last `tail` numbers are in one.
    Raises BackendError, on all ranks
    alike, where the node's shared memory is too small."""

    def __init__(self, comm: Any, size: int, parts: int | None = None, tail: int = 0) -> None:
        self._rank, self._turn = comm.rank, 0
        counters_at = -(-4 * size // PAGE) * PAGE
        room = counters_at + PAGE
        memory = np.frombuffer(_shared(comm, room * comm.size), np.uint8).reshape(comm.size, room)
        self.messages: list[Message] = [one[: 4 * size].view(np.float32) for one in memory]
        counters = [one[counters_at:].view(np.int64) for one in memory]
        self._arrived = [one[:1] for one in counters]
        self._done = [one[LINE // 8 : LINE // 8 + 1] for one in counters]
        parts = comm.size if parts is None else parts
        cuts = [min(size * part // parts // 16 * 16, max(0, size - tail)) for part in range(parts)] + [size]
        self._own = range(cuts[comm.rank], cuts[comm.rank + 1]) if comm.rank < parts else range(0)
        self._scratch = np.empty(min(BLOCK, len(self._own)), np.float32)

    @property
    def own(self) -> Message:
        """This rank's."""
        found: Message = self.messages[self._rank]
        return found

    def arrive(self) -> None:
        """This rank's message is ready; it is not touched until `add` returns."""
        self._turn += 1
        _fence()
        self._arrived[self._rank][0] = self._turn

    def add(self, between: Between | None = None, *, asleep: bool = False) -> None:
        """Wait for all ranks, and make every message the sum. `between` adds a slice across nodes, in place.

        `asleep`: from the first moment on, for a thread beside one that computes."""
        self._wait(self._arrived, asleep)
        if between is None:
            for block in self._blocks():
                self._hand_out(block, self._sum(block, self._scratch[: len(block)]))
        elif self._own:
            for block in self._blocks():
                self.own[block.start : block.stop] = self._sum(block, self._scratch[: len(block)])
            between(self.own[self._own.start : self._own.stop])
            for block in self._blocks():
                self._hand_out(block, self.own[block.start : block.stop])
        _fence()
        self._done[self._rank][0] = self._turn
        self._wait(self._done, asleep)

    def _blocks(self) -> list[range]:
        starts = [*range(self._own.start, self._own.stop, BLOCK), self._own.stop]
        return [range(*ends) for ends in itertools.pairwise(starts)]

    def _sum(self, block: range, out: Message) -> Message:
        out[:] = self.messages[0][block.start : block.stop]
        for other in self.messages[1:]:
            out += other[block.start : block.stop]
        return out

    def _hand_out(self, block: range, total: Message) -> None:
        for message in self.messages:
            message[block.start : block.stop] = total

    def _wait(self, counters: list[NDArray[np.int64]], asleep: bool) -> None:
        """Until all ranks have counted this turn."""
        wait_until(lambda: all(counter[0] >= self._turn for counter in counters), asleep=asleep)
        _fence()


def _shared(comm: Any, size: int) -> mmap.mmap:
    """Collective. Zeros that all ranks see."""

    def offer() -> Iterator[str]:
        """A file of that size, by the name that it has until all have opened it."""
        handle, path = tempfile.mkstemp(prefix="hpcnn-", dir=SHARED)
        try:
            os.posix_fallocate(handle, 0, size)  # a page that lacks later ends the process
            yield path
        finally:
            os.close(handle)
            os.unlink(path)

    offered = contextlib.contextmanager(offer)() if comm.rank == 0 else contextlib.nullcontext("")
    found: mmap.mmap | str = ""
    with contextlib.ExitStack() as stack:
        try:
            path = stack.enter_context(offered)
        except OSError as error:
            path, found = "", str(error.strerror)
        if path := comm.bcast(path):
            try:
                with open(path, "r+b") as stream:
                    found = mmap.mmap(stream.fileno(), size)
            except OSError as error:
                found = str(error.strerror)
        words = next((one for one in comm.allgather(found if isinstance(found, str) else "") if one), "")
    if words or isinstance(found, str):
        raise BackendError(
            f"--reducer mpi: no {size / 1e6:,.1f} MB of memory in {SHARED} that the ranks of a node share ({words}): "
            "make it larger, or give --reducer-option algorithm=flat"
        )
    return found


def _fence() -> None:
    """Keeps what was written before it before what is written after it, and reads likewise, for other processes too.

    A lock that is given back and taken again does, on every processor; Python has nothing more direct."""
    for _ in range(2):
        with _LOCK:
            pass
