"""Sums by mpi4py of gradients where a GPU has them: no copy to the host before the sum, one after it.

For an MPI library that takes buffers of a GPU (CUDA-aware). Pieces that are posted are added when they are completed:
Open MPI has no nonblocking sums of such buffers. Losses and correct rows lie with the host, and follow in a message of
their own.

NOTE: this has not been run on a GPU yet; it is tested with a CPU as the other device, whose buffers MPI gets as it
would a GPU's.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from hpcnn.parallel.reducers.contract import STATISTICS, Message, Reducer
from hpcnn.records.manifest import libmpis_loaded
from hpcnn.wrappers.contract import KeptGradient


def mpi_reads_gpus() -> bool:
    """Whether the MPI library of this process says that it takes buffers of a GPU."""
    for path in libmpis_loaded():
        with contextlib.suppress(OSError, AttributeError):
            return bool(ctypes.CDLL(path).MPIX_Query_cuda_support())  # Open MPI's and MPICH's
    return False


class DeviceReducer(Reducer):
    """Of segments whose gradients were lent to it; others' messages are added from the host."""

    name = "mpi"

    def __init__(self, comm: Any, options: Any, *, world: Any, backend: str) -> None:
        super().__init__(comm, options, world=world, backend=backend)
        self._kept: dict[int, KeptGradient] = {}
        self._keeping: dict[int, KeptGradient] = {}
        self._posted: dict[int, Message] = {}
        self._by_host = False

    def lend(self, segment: int, gradient: KeptGradient | None) -> None:
        if gradient is not None:
            self._kept[segment] = gradient

    def show(self) -> None:
        self._by_host = True

    def begin(self, rows: int, global_rows: int) -> None:
        self._keeping = {} if self._by_host else self._kept
        self._by_host = False
        for gradient in self._keeping.values():
            gradient.keep()

    def reduce(self, segment: int, message: Message) -> None:
        from mpi4py import MPI

        gradient = self._keeping.get(segment)
        if gradient is None:
            self.comm.Allreduce(MPI.IN_PLACE, message, op=MPI.SUM)
            return
        self.comm.Allreduce(MPI.IN_PLACE, gradient.buffer(), op=MPI.SUM)
        self.comm.Allreduce(MPI.IN_PLACE, message[-STATISTICS:], op=MPI.SUM)
        gradient.release()

    def post(self, segment: int, message: Message) -> None:
        self._posted[segment] = message

    def complete(self, segment: int) -> float | None:
        self.reduce(segment, self._posted.pop(segment))
        return None

    def describe(self) -> dict[str, Any]:
        return {"algorithm": "flat", "buffers": "device"}
