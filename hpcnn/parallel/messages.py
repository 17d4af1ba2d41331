"""Activations and their gradients between the stages of a replica: non-blocking, any size, into buffers that are kept.

A blocking send of more than a few KiB waits for its receive, and two stages that send to each other wait for ever. So
sends are posted and completed later, and of each channel (sender, receiver, kind, segment) one receive is posted ahead:
a message finds its place while the receiver computes. Who waits sleeps: two stages with a core each are 0 to 2 % faster
with ranks that stay awake, four on two cores 9 % slower (medians of 5 and 4 pairs).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from math import prod
from typing import Any

from hpcnn.data.dataset import aligned_empty
from hpcnn.network.shapes import Shape
from hpcnn.parallel.program import RECEIVING, Kind, Operation, stage_of
from hpcnn.parallel.waiting import wait_asleep
from hpcnn.wrappers.contract import Array

_Channel = tuple[Kind, int]


class Messages:
    """One rank's ends. `comm`: the stages of its replica, rank = stage. A segment's neighbours are on other stages."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self._due: dict[_Channel, deque[tuple[Operation, Shape]]] = defaultdict(deque)
        self._posted: dict[_Channel, tuple[Operation, Array, Any]] = {}
        self._free: dict[_Channel, list[Array]] = defaultdict(list)
        self._lent: dict[Operation, Array] = {}
        self._sent: deque[tuple[Any, Array]] = deque()

    def expect(self, receives: Iterable[tuple[Operation, Shape]]) -> None:
        """The receives of a step in the program's order, with the shapes of what comes, rows first."""
        for operation, shape in receives:
            self._due[_channel(operation)].append((operation, shape))
        for channel in self._due:
            self._post(channel)

    def receive(self, operation: Operation) -> Array:
        """Wait for what was expected; the array is lent until `release`. ValueError where another one is next."""
        channel = _channel(operation)
        posted = self._posted.pop(channel, None)
        if posted is None or posted[0] != operation:
            raise ValueError(f"{operation} is not what is expected next: {posted[0] if posted else 'nothing'} is")
        _, array, request = posted
        wait_asleep(request)
        self._lent[operation] = array
        self._post(channel)
        return array

    def release(self, operation: Operation) -> None:
        """What `operation` received is used up: its memory may be filled again."""
        array = self._lent.pop(operation, None)
        if array is not None:
            self._free[_channel(operation)].append(array)

    def send(self, operation: Operation, array: Array) -> None:
        """Post `array`, which must stay as it is until it has gone (`finish`)."""
        peer = stage_of(operation.other_end.segment, self._comm.size)
        self._sent.append((self._comm.Isend(array, peer, _tag(operation.other_end)), array))
        while self._sent and self._sent[0][0].Test():
            self._sent.popleft()

    def finish(self) -> None:
        """Wait until all that was sent has gone."""
        while self._sent:
            wait_asleep(self._sent.popleft()[0])

    def _post(self, channel: _Channel) -> None:
        if channel in self._posted or not self._due[channel]:
            return
        operation, shape = self._due[channel].popleft()
        array = self._buffer(channel, shape)
        peer = stage_of(operation.other_end.segment, self._comm.size)
        self._posted[channel] = operation, array, self._comm.Irecv(array, peer, _tag(operation))

    def _buffer(self, channel: _Channel, shape: Shape) -> Array:
        """A free one of this size; micro-batches have two sizes at most, and a last batch two more."""
        free, size = self._free[channel], prod(shape)
        for place, array in enumerate(free):
            if array.size == size:
                return free.pop(place).reshape(shape)
        return aligned_empty(shape)


def _channel(operation: Operation) -> _Channel:
    if operation.kind not in RECEIVING:
        raise ValueError(f"{operation} receives nothing")
    return operation.kind, operation.segment


def _tag(receive: Operation) -> int:
    return 2 * receive.segment + (receive.kind is Kind.GET)
