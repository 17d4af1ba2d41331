"""Carries programs out on real ranks, each number followed from the rows to the gradients, or until all stand still.

A network of integers: on micro-batch m segment k makes y = (m + 2) x + k of its input x, and adds x dy to its gradient;
the loss is y y / 2, so that dy = y. Each value is used up by whoever needs it, so an operation too many, too few or too
early is missed or left over. Messages are above the eager limit: a send ends only when its receive is there.

Ranks stand still when every one of them has looked `LOOKS` times since any of them last got on, however slow they are.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.parallel.program import Kind, Operation, parse_program, stage_of

LOOKS = 40
LEFT = 2**40
SECONDS_BETWEEN_LOOKS = 0.0005
NUMBERS = 9000
"""int64 of a message: 72 KB."""

_kept: list[Any] = []
"""Buffers of messages that will never come: MPI may still write to them."""


class Wrong(Exception):
    """What a rank could not do."""


def run_programs(comm: Any, texts: list[str], stages: int, segments: int, micro_batches: int, board_path: str) -> str:
    """Collective. "" where all ranks came to their end with the right gradients, else what kept the first from it."""
    replica, stage = divmod(comm.rank, stages)
    board = np.memmap(board_path, np.int64, "r+", shape=(comm.size, 3))
    board[comm.rank] = 0, -1, 0
    group, stages_comm, replicas_comm = comm.Dup(), comm.Split(replica, stage), comm.Split(stage, replica)
    comm.Barrier()
    rank = _Rank(stages_comm, replicas_comm, _Board(board, comm.rank), segments, micro_batches)
    try:
        rank.run(texts[comm.rank])
        words = ""
    except Wrong as wrong:
        words = f"rank {comm.rank}: {wrong}"
    rank.board.leave()
    found = [said for said in group.allgather(words) if said]
    if found:
        rank.abandon()
    return min(found, key=lambda said: "for ever" in said, default="")  # who waits may wait for one who gave up


def row(replica: int, micro_batch: int) -> int:
    """The one row of a micro-batch."""
    return 1 + micro_batch + 5 * replica


def expected(segments: int, micro_batches: int, replicas: int) -> list[int]:
    """Each segment's gradient over all rows, from one process that knows nothing of programs."""
    gradient = [0] * segments
    for replica in range(replicas):
        for m in range(micro_batches):
            inputs = [row(replica, m)]
            for k in range(segments):
                inputs.append((m + 2) * inputs[k] + k)
            dy = inputs[segments]
            for k in reversed(range(segments)):
                gradient[k] += inputs[k] * dy
                dy *= m + 2
    return gradient


class _Board:
    """What all ranks see of each other: how often each got on, and how often it has looked in vain at which sum of all
    these numbers. A rank that has left counts as one that looks."""

    def __init__(self, board: NDArray[np.int64], rank: int) -> None:
        self._progress, self._seen, self._looks = board.T
        self._rank = rank

    def got_on(self) -> None:
        self._progress[self._rank] += 1

    def leave(self) -> None:
        self._looks[self._rank] = LEFT

    def all_stand_still(self) -> bool:
        time.sleep(SECONDS_BETWEEN_LOOKS)
        progress = int(self._progress.sum())
        if progress != self._seen[self._rank]:
            self._looks[self._rank] = 0
            self._seen[self._rank] = progress
        self._looks[self._rank] += 1
        in_vain = (self._seen == progress) & (self._looks >= LOOKS)
        return bool((in_vain | (self._looks == LEFT)).all())


class _Rank:
    def __init__(self, stages: Any, replicas: Any, board: _Board, segments: int, micro_batches: int) -> None:
        self.board = board
        self._stages, self._replicas = stages, replicas
        self._segments, self._micro_batches = segments, micro_batches
        self._values: dict[Operation, int] = {}
        """What an operation made and nobody has used up yet; a slot is its forward's input, under W's name."""
        self._sent: list[Any] = []
        self._receiving: list[Any] = []
        self._started: list[tuple[Any, NDArray[np.int64]]] = []
        """All requests, with what MPI reads or writes until they are complete."""
        self._posted: dict[int, tuple[Any, NDArray[np.int64]]] = {}
        own = [k for k in range(segments) if stage_of(k, stages.size) == stages.rank]
        self._gradient = dict.fromkeys(own, 0)
        self._updated: set[int] = set()
        self._losses, self._shared = 0, stages.size == 1

    def run(self, text: str) -> None:
        for operation in parse_program(text):
            if operation.kind is not Kind.SHARE and operation.segment not in self._gradient:
                raise Wrong(f"{operation} is of another stage")
            getattr(self, f"_{operation.kind.name.lower()}")(operation)
            self.board.got_on()
        for request in self._sent:
            self._await(request, "a send")
        right = expected(self._segments, self._micro_batches, self._replicas.size)
        if left := [*map(str, self._values), *self._posted]:
            raise Wrong(f"{left} are left over")
        if self._updated != set(self._gradient) or not self._shared:
            raise Wrong("something was not updated, or no loss handed on")
        if wrong := [k for k, value in self._gradient.items() if value != right[k]]:
            raise Wrong(f"wrong gradients of {wrong}")

    def abandon(self) -> None:
        for request in self._receiving:
            request.Cancel()
        _kept.extend(started for started in self._started if not started[0].Test())

    def _start(self, request: Any, buffer: NDArray[np.int64]) -> Any:
        self._started.append((request, buffer))
        return request

    def _add(self, comm: Any, message: NDArray[np.int64]) -> Any:
        from mpi4py import MPI

        return self._start(comm.Iallreduce(MPI.IN_PLACE, message), message)

    def _await(self, request: Any, what: object) -> None:
        while not request.Test():
            if self.board.all_stand_still():
                raise Wrong(f"waits in {what} for ever")

    def _take(self, kind: Kind, segment: int, m: int | None) -> int:
        try:
            return self._values.pop(Operation(kind, segment, m))
        except KeyError:
            raise Wrong(f"{Operation(kind, segment, m)} has not come") from None

    def _put(self, operation: Operation, value: int) -> None:
        if operation in self._values:
            raise Wrong(f"{operation} is open already")
        self._values[operation] = value

    def _is_last(self, segment: int) -> bool:
        return segment == self._segments - 1

    def _forward(self, operation: Operation) -> None:
        k, m = operation.segment, int(operation.micro_batch or 0)
        alone = self._stages.size == 1
        x = row(self._replicas.rank, m) if k == 0 else self._take(Kind.FORWARD if alone else Kind.ACCEPT, k - alone, m)
        self._put(Operation(Kind.BACKWARD_WEIGHTS, k, m), x)
        self._put(operation, (m + 2) * x + k)

    def _whole(self, operation: Operation, dy: int) -> None:
        k, m = operation.segment, operation.micro_batch
        self._input(operation, dy)
        self._gradient[k] += self._take(Kind.BACKWARD_WEIGHTS, k, m) * self._take(Kind.BACKWARD_INPUT, k, m)

    def _input(self, operation: Operation, dy: int) -> None:
        """I's name holds the output's gradient for W, B's the input's gradient for T."""
        k, m = operation.segment, int(operation.micro_batch or 0)
        if Operation(Kind.BACKWARD_WEIGHTS, k, m) not in self._values:
            raise Wrong(f"{operation}: the slot is not open")
        self._put(Operation(Kind.BACKWARD_INPUT, k, m), dy)
        if k > 0:
            self._put(Operation(Kind.BACKWARD, k, m), (m + 2) * dy)

    def _output_gradient(self, operation: Operation) -> int:
        k, m = operation.segment, operation.micro_batch
        if self._is_last(k):
            raise Wrong(f"{operation}: the last segment has no output gradient")
        alone = self._stages.size == 1
        return self._take(Kind.BACKWARD if alone else Kind.GET, k + alone, m)

    def _own_loss(self, operation: Operation) -> int:
        if not self._is_last(operation.segment):
            raise Wrong(f"{operation}: only the last segment has a loss")
        y = self._take(Kind.FORWARD, operation.segment, operation.micro_batch)
        self._losses += 1
        return y

    def _backward(self, operation: Operation) -> None:
        self._whole(operation, self._output_gradient(operation))

    def _backward_input(self, operation: Operation) -> None:
        self._input(operation, self._output_gradient(operation))

    def _loss(self, operation: Operation) -> None:
        self._whole(operation, self._own_loss(operation))

    def _loss_input(self, operation: Operation) -> None:
        self._input(operation, self._own_loss(operation))

    def _backward_weights(self, operation: Operation) -> None:
        k, m = operation.segment, operation.micro_batch
        self._gradient[k] += self._take(Kind.BACKWARD_INPUT, k, m) * self._take(Kind.BACKWARD_WEIGHTS, k, m)

    def _message(self, receive: Operation, value: int) -> tuple[NDArray[np.int64], int]:
        message = np.full(NUMBERS, value, np.int64)
        message[:2] = receive.segment, receive.micro_batch
        return message, 2 * receive.segment + (receive.kind is Kind.GET)

    def _send(self, operation: Operation) -> None:
        made = Kind.FORWARD if operation.kind is Kind.SEND else Kind.BACKWARD
        if self._stages.size == 1:
            raise Wrong(f"{operation}: nobody to send to")
        value = self._take(made, operation.segment, operation.micro_batch)
        message, tag = self._message(operation.other_end, value)
        peer = stage_of(operation.other_end.segment, self._stages.size)
        self._sent.append(self._start(self._stages.Isend(message, peer, tag), message))

    _transmit = _send

    def _accept(self, operation: Operation) -> None:
        if self._stages.size == 1:
            raise Wrong(f"{operation}: nobody to receive from")
        message, tag = self._message(operation, 0)
        peer = stage_of(operation.other_end.segment, self._stages.size)
        request = self._start(self._stages.Irecv(message, peer, tag), message)
        self._receiving.append(request)
        self._await(request, operation)
        self._receiving.pop()
        if tuple(message[:2]) != (operation.segment, operation.micro_batch) or (message[2:] != message[-1]).any():
            raise Wrong(f"{operation} got the message of {message[:2]}")
        self._put(operation, int(message[-1]))

    _get = _accept

    def _post(self, operation: Operation) -> None:
        """The gradient, with its segment before it."""
        message = np.array([operation.segment, self._gradient[operation.segment]])
        request = self._add(self._replicas, message)
        if operation.segment in self._posted:
            raise Wrong(f"{operation} is under way already")
        self._posted[operation.segment] = request, message

    def _complete(self, operation: Operation) -> None:
        if operation.segment not in self._posted:
            raise Wrong(f"{operation} was not posted")
        request, message = self._posted[operation.segment]
        self._await(request, operation)
        del self._posted[operation.segment]
        if message[0] != operation.segment * self._replicas.size:
            raise Wrong(f"{operation} added gradients of several segments")
        self._gradient[operation.segment] = int(message[1])

    def _reduce(self, operation: Operation) -> None:
        self._post(operation)
        self._complete(operation)

    def _share(self, operation: Operation) -> None:
        if self._shared or self._updated != set(self._gradient):
            raise Wrong(f"{operation}: something is not updated yet, or was handed on already")
        message = np.array([self._losses])
        self._await(self._add(self._stages, message), operation)
        if message[0] != self._micro_batches:
            raise Wrong(f"{operation} added {message[0]} losses of {self._micro_batches}")
        self._shared = True

    def _is_whole(self, segment: int) -> bool:
        return self._gradient[segment] == expected(self._segments, self._micro_batches, self._replicas.size)[segment]

    def _update(self, operation: Operation) -> None:
        if operation.segment in self._updated or not self._is_whole(operation.segment):
            raise Wrong(f"{operation}: the gradient is not whole, or was used already")
        self._updated.add(operation.segment)
