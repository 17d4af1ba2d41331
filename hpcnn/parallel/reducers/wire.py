"""Sums over messages of 16 bits a number: half the traffic, for a rounding on the way there and one on the way back.

Each rank gets one slice of all ranks' numbers, adds it in float32, and sends the rounded sum to all, itself included:
all ranks end with the same bits. With u the format's unit roundoff (2^-11 of float16, 2^-8 of bfloat16) and numbers in
its normal range, a sum s of g_0 + g_1 + ... is off by at most u (|g_0| + |g_1| + ...) (1 + u) + u |s|, and the float32
sum's own error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.parallel.reducers.contract import Message

Packed = NDArray[np.uint16]
Wait = Callable[[Any], None]


@dataclass(frozen=True)
class Format:
    """16 bits a number. Beyond float16's 65,504 a number becomes infinite, which the next loss tells."""

    name: str
    roundoff: float
    pack: Callable[[Message], Packed]
    unpack: Callable[[Packed], Message]


def _pack_half(numbers: Message) -> Packed:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float16).view(np.uint16)


def _unpack_half(packed: Packed) -> Message:
    return packed.view(np.float16).astype(np.float32)


def _pack_brain(numbers: Message) -> Packed:
    """The upper half of float32, rounded to nearest, ties to even; a not-a-number stays one."""
    bits = numbers.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(numbers), 0x7FC0, rounded).astype(np.uint16)


def _unpack_brain(packed: Packed) -> Message:
    return (packed.astype(np.uint32) << 16).view(np.float32)


FORMATS = {
    "float16": Format("float16", 2.0**-11, _pack_half, _unpack_half),
    "bfloat16": Format("bfloat16", 2.0**-8, _pack_brain, _unpack_brain),
}


def add_packed(comm: Any, message: Message, packing: Format, wait: Wait) -> None:
    """Collective. The sum over `comm`, in place. `wait` waits for a request."""
    size, ranks = len(message), comm.size
    counts = [size * (rank + 1) // ranks - size * rank // ranks for rank in range(ranks)]
    starts = [0, *accumulate(counts)][:-1]
    mine = counts[comm.rank]
    parts = np.empty((ranks, mine), np.uint16)
    whole = packing.pack(message)
    received = [mine] * ranks, [mine * rank for rank in range(ranks)]
    wait(comm.Ialltoallv([whole, (counts, starts)], [parts, received]))
    total = np.zeros(mine, np.float32)
    for part in parts:
        total += packing.unpack(part)
    wait(comm.Iallgatherv(packing.pack(total), [whole, (counts, starts)]))
    message[:] = packing.unpack(whole)
