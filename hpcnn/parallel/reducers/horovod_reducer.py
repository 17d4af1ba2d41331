"""Sums by Horovod, on the communicator that mpi4py has: its thread looks for what all ranks have given it to add.

Our own flat messages are given to it, and not the framework's optimizer: Keras 3 never calls Horovod's hooks, and
nothing would be added, without a word. So Horovod's sum is in the place of MPI's, for each framework by its binding.
All ranks are one world of Horovod; the replicas of each stage are a process set in it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hpcnn.data.agree import attempt
from hpcnn.errors import BackendError, LaunchError
from hpcnn.parallel.reducers.contract import STATISTICS, Message, Reducer, half_bytes
from hpcnn.parallel.reducers.horovod_bindings import BINDINGS, Binding, Reduction
from hpcnn.wrappers.horovod_built import find_horovod
from hpcnn.wrappers.import_alone import during

ONLY_MPI = ("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS")
"""Variables that have Horovod talk otherwise, which without a server of its own makes each rank a world."""


class HorovodReducer(Reducer):
    """One named operation a segment. With fewer bits or Adasum, the statistics are added by one of their own, as they
    are."""

    name = "horovod"

    def __init__(self, comm: Any, options: Any, *, world: Any, backend: str) -> None:
        super().__init__(comm, options, world=world, backend=backend)
        self._ranks: tuple[int, ...] = tuple(comm.allgather(world.rank))
        replicas = sorted(set(world.allgather(self._ranks)))
        attempt(world, lambda: self._check(several=len(replicas) > 1))
        self._binding: Binding = attempt(world, lambda: BINDINGS[backend]())
        hvd = self._binding.hvd
        attempt(world, lambda: check_mpi(hvd))
        if hvd.is_initialized():  # by a training before in this process, maybe over other ranks
            hvd.shutdown()
        sets = [hvd.ProcessSet(list(ranks)) for ranks in replicas] if len(replicas) > 1 else []
        with during(os.environ, self._settings()):
            self._binding.init(world, sets)
        attempt(world, lambda: check_world(hvd, world))
        self._process_set = sets[replicas.index(self._ranks)] if sets else hvd.global_process_set
        self._to_local_mean = 1.0
        self._started: dict[int, Any] = {}

    def _check(self, several: bool) -> None:
        """What can be refused before Horovod is imported."""
        if self.backend not in BINDINGS:
            raise BackendError(
                f"--reducer horovod: Horovod has no binding to {self.backend}: it has one to {', '.join(BINDINGS)}; "
                "for others leave --reducer out"
            )
        size = self.comm.size
        if self.options.op == "adasum" and size & (size - 1):
            raise LaunchError(
                f"--reducer-option op=adasum works on 2, 4, 8 ... ranks, not on {size}: start so many, or take op=sum"
            )
        if self.options.op == "adasum" and several:
            raise BackendError(
                "--reducer-option op=adasum works over all ranks alone, and here each stage has its own: take op=sum "
                "or --strategy data"
            )
        for name in ONLY_MPI:
            if os.environ.get(name, "mpi").lower() != "mpi":
                raise BackendError(
                    f"--reducer horovod adds over MPI, and {name}={os.environ[name]} says otherwise: unset {name}"
                )
        path = self.options.timeline
        if path and self.world.rank == 0:
            try:
                open(path, "w").close()
            except OSError as error:
                raise BackendError(
                    f"--reducer-option timeline={path}: {error.strerror}: give a file that rank 0 can write"
                ) from None

    def _settings(self) -> dict[str, str]:
        """Horovod's own variables, which it reads as it starts."""
        found = {"HOROVOD_CYCLE_TIME": f"{self.options.cycle_time_ms:g}"}
        if self.options.timeline:
            found["HOROVOD_TIMELINE"] = os.path.abspath(self.options.timeline)
        return found

    def begin(self, rows: int, global_rows: int) -> None:
        """Adasum weighs the ranks' own means, which is what it was made for; a sum over the global batch is divided by
        that, and so here, at this one place, multiplied by its rows over this rank's."""
        self._to_local_mean = global_rows / rows if self.options.op == "adasum" and rows else 1.0

    def _reductions(self, segment: int, message: Message) -> Sequence[Reduction]:
        adasum, half = self.options.op == "adasum", self.options.compression == "fp16"
        if not (adasum or half):
            return [Reduction(f"gradient.segment{segment}", message)]
        gradient, statistics = message[:-STATISTICS], message[-STATISTICS:]
        if self._to_local_mean != 1.0:
            gradient *= self._to_local_mean
        return [
            *([Reduction(f"gradient.segment{segment}", gradient, adasum, half)] if len(gradient) else []),
            Reduction(f"statistics.segment{segment}", statistics),
        ]

    def reduce(self, segment: int, message: Message) -> None:
        self._binding.run(self._reductions(segment, message), self._process_set)

    def post(self, segment: int, message: Message) -> None:
        self._started[segment] = self._binding.start(self._reductions(segment, message), self._process_set)

    def complete(self, segment: int) -> None:
        self._binding.finish(self._started.pop(segment))

    def wire_bytes(self, message: Message) -> int:
        return half_bytes(message) if self.options.compression == "fp16" else super().wire_bytes(message)

    def describe(self) -> dict[str, Any]:
        hvd = self._binding.hvd
        variables = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
        return {
            "version": str(find_horovod()),
            "size": hvd.size(),
            "process_set": list(self._ranks) if self._process_set is not hvd.global_process_set else "all",
            "variables": {**variables, **self._settings()},
        }

    def close(self) -> None:
        self.world.Barrier()  # one rank that ends Horovod ends it for all, and other stages may still add
        self._binding.close()


def check_mpi(hvd: Any) -> None:
    """BackendError where this Horovod was compiled without MPI."""
    if not hvd.mpi_built():
        raise BackendError(
            "--reducer horovod: this Horovod was compiled without MPI, and would make each rank a world of its own: "
            "HPCNN_HOROVOD=yes bash env/create.sh compiles one with it"
        )


def check_world(hvd: Any, world: Any) -> None:
    """LaunchError where Horovod sees others than MPI does: without a server to meet at, Gloo makes worlds of one."""
    if (hvd.size(), hvd.rank()) != (world.size, world.rank):
        raise LaunchError(
            f"--reducer horovod: Horovod sees {hvd.size()} ranks, MPI {world.size}: start them by the mpirun of the "
            "environment, bash env/with.sh BACKEND mpirun -np N hpcnn train ..."
        )
    if not hvd.mpi_threads_supported():
        raise BackendError(
            "--reducer horovod: this MPI allows one thread at a time, and Horovod has one of its own: "
            "leave --reducer out"
        )
