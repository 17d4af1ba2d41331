"""Nothing computed: every call takes a given time, by sleeping. For schedules, messages and bubbles of many ranks on
few cores.

Everything else is real: programs, buffers, messages, updates, files. A segment's output and its input's gradient are
zeros of the right shape, its gradient stays as it is, the loss is that of zero logits.

A call ends when its time has passed since it began: its own work counts in, and a sleep that is woken goes on to the
same moment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hpcnn.wrappers.contract import Array, Capabilities, LossResult, SegmentModel


@dataclass
class _Slot:
    rows: int
    first_half_done: bool = False


class SimulatedSegment(SegmentModel):
    """A segment of any layers that only takes time: a forward the same whatever it is and however many its rows."""

    backend: ClassVar[str] = "simulated"
    capabilities: ClassVar[Capabilities] = Capabilities(weights_are_views=True, can_split_backward=True, computes=False)

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._forward_seconds = self.options.forward_seconds
        self._backward_seconds = self.options.forward_seconds * self.options.backward_ratio
        self._slots: dict[int, _Slot] = {}

    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        until = time.monotonic() + self._forward_seconds
        if slot in self._slots:
            raise ValueError(f"slot {slot} is open already: close it before another forward")
        self.check_masks(masks)
        self._slots[slot] = _Slot(len(x))
        return self._zeros(len(x), self.segment.output_shape, until)

    def backward(self, slot: int, output_gradient: Array) -> Array | None:
        until = time.monotonic() + self._backward_seconds
        self._check_halves(slot, first_half_done=False)
        return self._input_gradient(self._slots.pop(slot), until)

    def loss_backward(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        until = time.monotonic() + self._backward_seconds
        self._check_halves(slot, first_half_done=False)
        return self._loss(self._slots.pop(slot), labels, until)

    def backward_input(self, slot: int, output_gradient: Array) -> Array | None:
        until = time.monotonic() + self._backward_seconds / 2
        self._check_halves(slot, first_half_done=False)
        self._slots[slot].first_half_done = True
        return self._input_gradient(self._slots[slot], until)

    def loss_backward_input(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        until = time.monotonic() + self._backward_seconds / 2
        self._check_halves(slot, first_half_done=False)
        self._slots[slot].first_half_done = True
        return self._loss(self._slots[slot], labels, until)

    def backward_weights(self, slot: int) -> None:
        until = time.monotonic() + self._backward_seconds / 2
        self._check_halves(slot, first_half_done=True)
        del self._slots[slot]
        _sleep(until)

    def infer(self, x: Array) -> Array:
        return self._zeros(len(x), self.segment.output_shape, time.monotonic() + self._forward_seconds)

    def describe(self) -> dict[str, Any]:
        return {
            "computes": "nothing: calls sleep",
            "forward_seconds": self._forward_seconds,
            "backward_seconds": self._backward_seconds,
        }

    def _check_halves(self, slot: int, *, first_half_done: bool) -> None:
        if self._slots[slot].first_half_done != first_half_done:
            raise KeyError(slot)

    def _input_gradient(self, slot: _Slot, until: float) -> Array | None:
        if self.input_gradient:
            return self._zeros(slot.rows, self.segment.input_shape, until)
        _sleep(until)
        return None

    def _loss(self, slot: _Slot, labels: NDArray[np.int64], until: float) -> LossResult:
        """Of equal logits: each class is as likely, and the first one is the largest."""
        loss = len(labels) * math.log(self.segment.output_shape[0])
        return LossResult(loss, int((labels == 0).sum()), self._input_gradient(slot, until))

    def _zeros(self, rows: int, shape: tuple[int, ...], until: float) -> Array:
        array: Array = np.zeros((rows, *shape), np.float32)
        _sleep(until)
        return array


def _sleep(until: float) -> None:
    """To a moment of the monotonic clock."""
    remaining = until - time.monotonic()
    if remaining > 0:
        time.sleep(remaining)
