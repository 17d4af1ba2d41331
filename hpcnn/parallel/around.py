"""Reducers around a reducer: they look at what it adds, or change it."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from hpcnn.parallel.optimizers import dot
from hpcnn.parallel.reducers.contract import STATISTICS, Message, Reducer


class Around(Reducer):
    """Hands everything on to `inner`."""

    name: ClassVar[str] = "around"

    def __init__(self, inner: Reducer) -> None:
        super().__init__(inner.comm, inner.options, world=inner.world, backend=inner.backend)
        self.inner = inner

    def allocate(self, size: int) -> Message:
        return self.inner.allocate(size)

    def lend(self, segment: int, gradient: Any) -> None:
        self.inner.lend(segment, gradient)

    def show(self) -> None:
        self.inner.show()

    def begin(self, rows: int, global_rows: int) -> None:
        self.inner.begin(rows, global_rows)

    def reduce(self, segment: int, message: Message) -> None:
        self.inner.reduce(segment, message)

    def post(self, segment: int, message: Message) -> None:
        self.inner.post(segment, message)

    def complete(self, segment: int) -> float | None:
        return self.inner.complete(segment)

    def wire_bytes(self, message: Message) -> int:
        return self.inner.wire_bytes(message)

    def describe(self) -> dict[str, Any]:
        return self.inner.describe()

    def close(self) -> None:
        self.inner.close()


class Shares(Around):
    """How much of a step's sum this rank brought: its own gradient's projection on the sum, over the sum's norm.

    The shares of all replicas add up to 1 where the sum is one of all of them. Looks at a step after `watch` alone.
    """

    def __init__(self, inner: Reducer) -> None:
        super().__init__(inner)
        self._watching = False
        self._own: dict[int, tuple[Message, Message]] = {}
        self._squares = self._along = self._total = 0.0

    def watch(self) -> None:
        """Look at the step that comes."""
        self._watching = True
        self.show()
        self._squares = self._along = self._total = 0.0

    def watched(self) -> tuple[float, float, float | None]:
        """Norms of this rank's own gradient and of the sum in the step that was watched, and its share of the sum (None
        of a sum of 0)."""
        self._watching = False
        share = self._along / self._total if self._total else None
        return math.sqrt(self._squares), math.sqrt(self._total), share

    def reduce(self, segment: int, message: Message) -> None:
        self._before(segment, message)
        super().reduce(segment, message)
        self._after(segment)

    def post(self, segment: int, message: Message) -> None:
        self._before(segment, message)
        super().post(segment, message)

    def complete(self, segment: int) -> float | None:
        done = super().complete(segment)
        self._after(segment)
        return done

    def _before(self, segment: int, message: Message) -> None:
        if self._watching:
            gradient = message[:-STATISTICS]
            self._own[segment] = gradient.copy(), gradient

    def _after(self, segment: int) -> None:
        if segment in self._own:
            own, total = self._own.pop(segment)
            self._squares += dot(own, own)
            self._along += dot(own, total)
            self._total += dot(total, total)
