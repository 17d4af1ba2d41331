"""Sums by mpi4py: inside a node through its memory, between nodes by messages, meanwhile going on to compute.

`nodes` is two levels: the ranks of a node add in shared memory, each its slice (node.py); of several nodes, ranks with
the same slice then add it between nodes. So a node sends its sum once, whatever its number of ranks. `flat` is one
Allreduce over all. What is posted is moved by a thread (worker.py), since MPI moves messages only while it is called.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from hpcnn.errors import BackendError
from hpcnn.parallel.reducers.contract import STATISTICS, Message, Reducer, half_bytes
from hpcnn.parallel.reducers.node import NodeMemory
from hpcnn.parallel.reducers.wire import FORMATS, add_packed
from hpcnn.parallel.reducers.worker import Job, Worker
from hpcnn.parallel.waiting import wait_asleep


class MpiReducer(Reducer):
    """See the module. Which algorithm `auto` takes depends on the layout of ranks alone."""

    name = "mpi"

    def __init__(self, comm: Any, options: Any, *, world: Any, backend: str) -> None:
        super().__init__(comm, options, world=world, backend=backend)
        from mpi4py import MPI

        self._all = comm.Dup()  # of the thread, which others must not meet
        self._node = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
        sizes = comm.allgather(self._node.size)
        self._slices = min(sizes)
        self._across = comm.Split(self._node.rank if self._node.rank < self._slices else MPI.UNDEFINED, comm.rank)
        self._nodes = comm.allreduce(int(self._node.rank == 0))
        self._format = FORMATS.get(options.wire)
        # On one node nothing is sent, and so nothing could be rounded: who asks for that gets messages.
        fits = max(sizes) > 1 and not (self._format and self._nodes == 1)
        self.algorithm = options.algorithm if options.algorithm != "auto" else "nodes" if fits else "flat"
        if self.algorithm == "nodes" and self._format and self._nodes == 1:
            raise BackendError(
                f"--reducer-option algorithm=nodes sends nothing on one node, which wire={options.wire} could round: "
                "leave one of them out"
            )
        self._memories: dict[int, NodeMemory] = {}
        self._posted: dict[int, tuple[Message, Job | None]] = {}
        self._worker: Worker | None = None
        if options.progress == "thread":
            sends = self.algorithm == "flat" or self._nodes > 1
            if sends and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
                raise BackendError(
                    "this MPI allows one thread at a time, and a second would move messages: give "
                    "--reducer-option progress=none"
                )
            self._worker = Worker("reducer")

    def allocate(self, size: int) -> Message:
        if self.algorithm == "flat":
            return super().allocate(size)
        memory = NodeMemory(self._node, size, self._slices, STATISTICS)
        self._memories[memory.own.ctypes.data] = memory
        return memory.own

    def reduce(self, segment: int, message: Message) -> None:
        from mpi4py import MPI

        if self._posted and self._worker:  # messages of one communicator meet in their order: none overtakes another
            self.post(segment, message)
            self.complete(segment)
            return
        self._arrive(message)
        if self.algorithm == "flat" and self._format is None:  # nothing else is to be done: MPI may have the core
            self._all.Allreduce(MPI.IN_PLACE, message, op=MPI.SUM)
            return
        self._add(message)

    def post(self, segment: int, message: Message) -> None:
        self._arrive(message)
        job = self._worker.post(functools.partial(self._add, message, asleep=True)) if self._worker else None
        self._posted[segment] = message, job

    def complete(self, segment: int) -> float | None:
        message, job = self._posted.pop(segment)
        if job is not None:
            return job.wait()
        began = time.monotonic()
        self._add(message)
        return began  # nothing was done before

    def _arrive(self, message: Message) -> None:
        if self.algorithm == "nodes":
            self._memories[message.ctypes.data].arrive()

    def _add(self, message: Message, *, asleep: bool = False) -> None:
        if self.algorithm == "nodes":
            between = self._between if self._nodes > 1 else None
            self._memories[message.ctypes.data].add(between, asleep=asleep)
        else:
            self._send(self._all, message, STATISTICS)

    def _between(self, part: Message) -> None:
        self._send(self._across, part, STATISTICS if self._node.rank == self._slices - 1 else 0)

    def _send(self, comm: Any, message: Message, exact: int) -> None:
        """The sum over `comm`, by messages, in place; the last `exact` numbers are never rounded."""
        from mpi4py import MPI

        rounded = len(message) - exact if self._format else 0
        if self._format and rounded:
            add_packed(comm, message[:rounded], self._format, wait_asleep)
        if rounded < len(message):
            wait_asleep(comm.Iallreduce(MPI.IN_PLACE, message[rounded:], op=MPI.SUM))

    def wire_bytes(self, message: Message) -> int:
        return half_bytes(message) if self._format else super().wire_bytes(message)

    def describe(self) -> dict[str, Any]:
        return {"algorithm": self.algorithm, "nodes": self._nodes}

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._memories.clear()
        for comm in (self._all, self._node, self._across):
            if comm:  # _across is null on ranks without a slice
                comm.Free()
