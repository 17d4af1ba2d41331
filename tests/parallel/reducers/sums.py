"""What ranks of a pool do in the tests of reducers: fill messages by a rule that everybody knows, and add them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpcnn.parallel.reducers import Reducer, make_reducer
from hpcnn.parallel.reducers.node import NodeMemory
from hpcnn.parallel.reducers.wire import FORMATS, add_packed
from hpcnn.reducer_options import resolve_reducer


def contribution(rank: int, size: int, turn: int = 0) -> NDArray[np.float32]:
    """What a rank brings: of many magnitudes and both signs, some zeros."""
    generator = np.random.default_rng((rank, size, turn))
    numbers = generator.standard_normal(size) * 2.0 ** generator.integers(-12, 3, size)
    return np.where(generator.random(size) < 0.1, 0.0, numbers).astype(np.float32)


def added(ranks: int, size: int, turn: int = 0) -> NDArray[np.float64]:
    """The sum as float64 has it."""
    return sum((contribution(rank, size, turn).astype(np.float64) for rank in range(ranks)), np.zeros(size))


def magnitude(ranks: int, size: int, turn: int = 0) -> NDArray[np.float64]:
    """The sum of absolute values, which errors are in proportion to."""
    return sum((np.abs(contribution(rank, size, turn)).astype(np.float64) for rank in range(ranks)), np.zeros(size))


@dataclass(frozen=True)
class Outcome:
    """Each turn's sum as a rank has it, and the reducer's own words."""

    sums: list[NDArray[np.float32]]
    described: dict[str, Any]


def add(reducer: Reducer, messages: list[NDArray[np.float32]], posted: bool) -> None:
    """All of a step, the last segment's first where they are posted, as a backward does."""
    if posted:
        for segment, message in reversed([*enumerate(messages)]):
            reducer.post(segment, message)
        for segment in reversed(range(len(messages))):
            reducer.complete(segment)
    else:
        for segment, message in enumerate(messages):
            reducer.reduce(segment, message)


def reduced(
    comm: Any, name: str, options: dict[str, Any], sizes: list[int], turns: int, posted: bool, idle: int = -1
) -> Outcome:
    """Messages of several segments, added `turns` times over, all at once posted or one after another.

    Rank `idle` has no rows: it brings zeros. Ranks come at different times."""
    reducer = make_reducer(name, comm, resolve_reducer(name, options), world=comm, backend="torch")
    messages = [reducer.allocate(size) for size in sizes]
    sums = []
    for turn in range(turns):
        reducer.begin(0 if comm.rank == idle else 3, 3 * comm.size)
        for message in messages:
            message[:] = 0.0 if comm.rank == idle else contribution(comm.rank, len(message), turn)
        if (turn + comm.rank) % comm.size == 0:
            MPI.COMM_SELF.Barrier()
            np.linalg.norm(np.ones((300, 300)))  # comes later than the others
        add(reducer, messages, posted)
        sums += [message.copy() for message in messages]
    described = reducer.describe()
    del messages
    reducer.close()
    return Outcome(sums, described)


def node_sums(comm: Any, size: int, parts: int | None, turns: int, between: bool) -> list[NDArray[np.float32]]:
    """Sums in a node's memory; `between` doubles each slice, as another node with the same numbers would."""

    def double(part: NDArray[np.float32]) -> None:
        part *= 2

    memory = NodeMemory(comm, size, parts)
    sums = []
    for turn in range(turns):
        memory.own[:] = contribution(comm.rank, size, turn)
        memory.arrive()
        memory.add(double if between else None)
        sums.append(memory.own.copy())
    return sums


def packed_sum(comm: Any, size: int, name: str) -> NDArray[np.float32]:
    """One sum over messages of 16 bits."""
    message = contribution(comm.rank, size)
    add_packed(comm, message, FORMATS[name], lambda request: request.Wait())
    return message


def no_shared_memory(comm: Any, size: int) -> str:
    """What a rank is told where a node has not so much memory to share."""
    from hpcnn.errors import HpcnnError

    try:
        NodeMemory(comm, size)
    except HpcnnError as error:
        return str(error)
    return ""
