"""One Allreduce: the reference that the other reducers are held to, and the least that a library can do."""

from __future__ import annotations

from typing import Any

from hpcnn.parallel.reducers.contract import Message, Reducer
from hpcnn.parallel.waiting import wait_asleep


class PlainReducer(Reducer):
    """MPI's own Allreduce, blocking; what is posted moves when it is completed, or whenever MPI is called."""

    name = "plain"

    def __init__(self, comm: Any, options: Any, *, world: Any, backend: str) -> None:
        super().__init__(comm, options, world=world, backend=backend)
        self._posted: dict[int, Any] = {}

    def reduce(self, segment: int, message: Message) -> None:
        from mpi4py import MPI

        self.comm.Allreduce(MPI.IN_PLACE, message, op=MPI.SUM)

    def post(self, segment: int, message: Message) -> None:
        from mpi4py import MPI

        self._posted[segment] = self.comm.Iallreduce(MPI.IN_PLACE, message, op=MPI.SUM)

    def complete(self, segment: int) -> float | None:
        wait_asleep(self._posted.pop(segment))
        return None

    def describe(self) -> dict[str, Any]:
        return {}
