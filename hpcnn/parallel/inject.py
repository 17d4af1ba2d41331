"""Faults made on purpose, to see whether they are named: by `compare` those of `--inject`, by the run's own summary a
late rank (`--slow`). Each changes what is really done, at one place; nothing else knows of it.

    sum-without-mean     each rank takes the mean over its own rows, and the sum over ranks is not divided
    mean-twice           the sum, which the loss head has divided already, is divided by the ranks once more
    rate-not-scaled      the learning rate stays, though the batch is larger than the base batch
    same-rows            all ranks train on the rows of the first one
    drifting-ranks       gradients are not added: each rank updates from its own rows
    rank-left-out        the last rank's gradient is not in the sum
    same-shuffle         every epoch deals the rows as the first one does
    shifted-labels       each row has the label of the row after it
    other-dropout        dropout drops nothing, as where a network is left in its evaluating mode
    other-normalisation  rows are scaled by 255/256, as where pixels are divided by 256
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from hpcnn.config import RunConfig
from hpcnn.data.dataset import Dataset
from hpcnn.data.normalise import Normalisation
from hpcnn.errors import ConfigError, LaunchError
from hpcnn.network.architecture import Architecture
from hpcnn.network.layers import Dropout
from hpcnn.parallel.around import Around
from hpcnn.parallel.parts import Divisor, global_rows
from hpcnn.parallel.reducers.contract import STATISTICS, Message, Reducer
from hpcnn.wrappers.contract import Array

AMONG_RANKS = ("sum-without-mean", "mean-twice", "same-rows", "drifting-ranks", "rank-left-out")
IN_THE_SUM = ("drifting-ranks", "rank-left-out")

Result = TypeVar("Result")


def check_fault(config: RunConfig, replicas: int) -> None:
    """LaunchError or ConfigError where the fault would change nothing, or cannot be made."""
    fault = config.inject
    if fault in AMONG_RANKS and replicas == 1:
        raise LaunchError(f"--inject {fault} does nothing in one process: start at least two ranks")
    if fault in IN_THE_SUM and config.reducer == "native":
        raise ConfigError(f"--inject {fault} cannot reach into the framework's own sum: leave --reducer native out")
    if fault == "rate-not-scaled" and config.base_batch in (None, config.global_batch):
        raise ConfigError(
            f"--inject {fault} does nothing where the rate is not scaled: give a --base-batch other than "
            f"{config.global_batch}"
        )
    if fault == "same-shuffle" and config.epochs < 2:
        raise ConfigError(f"--inject {fault} does nothing in {config.epochs} epochs: give at least --epochs 2")


def check_dropout(fault: str | None, architecture: Architecture) -> None:
    """ConfigError where there is no dropout to be another one."""
    if fault == "other-dropout" and not any(isinstance(layer, Dropout) for layer in architecture.layers):
        raise ConfigError(
            f"--inject {fault} does nothing: {architecture.name} has no dropout; choose another --network"
        )


def injected_divisor(fault: str | None, ranks: int) -> Divisor:
    """The loss head's divisor with `fault` in it."""
    if fault in ("sum-without-mean", "drifting-ranks"):
        return lambda batch: float(len(batch.labels))
    if fault == "mean-twice":
        return lambda batch: float(batch.global_rows * ranks)
    return global_rows


def injected_rate(config: RunConfig) -> RunConfig:
    """The settings that the learning rate follows from."""
    return replace(config, base_batch=None) if config.inject == "rate-not-scaled" else config


def injected_rows(fault: str | None, replicas: Any, train: Dataset, shards: range) -> tuple[Dataset, range]:
    """Collective over the replicas. The rows, and the logical shards of them, that batches are drawn from."""
    if fault == "same-rows":
        first: tuple[Dataset, range] = replicas.bcast((train, shards))
        return first
    if fault == "shifted-labels" and train.labels is not None:
        return replace(train, labels=np.roll(train.labels, -1)), shards
    return train, shards


def injected_epoch(fault: str | None, epoch: int) -> int:
    """The epoch whose order rows are dealt in."""
    return 1 if fault == "same-shuffle" else epoch


def injected_masks(fault: str | None, masks: Sequence[Array]) -> Sequence[Array]:
    return [np.ones_like(mask) for mask in masks] if fault == "other-dropout" else masks


def injected_normalisation(fault: str | None, normalisation: Normalisation) -> Normalisation:
    """What rows to train on are scaled with."""
    if fault != "other-normalisation":
        return normalisation
    return replace(normalisation, scale=normalisation.scale * np.float32(255 / 256))


def injected_reducer(fault: str | None, reducer: Reducer) -> Reducer:
    if fault == "drifting-ranks":
        return _KeepsOwn(reducer)
    return _LeavesOut(reducer) if fault == "rank-left-out" else reducer


def lets_drift(fault: str | None) -> bool:
    """Whether a run goes on though its replicas are not equal any more."""
    return fault == "drifting-ranks"


class _LeavesOut(Around):
    """Adds without what the last rank brings."""

    def reduce(self, segment: int, message: Message) -> None:
        self._leave_out(message)
        super().reduce(segment, message)

    def post(self, segment: int, message: Message) -> None:
        self._leave_out(message)
        super().post(segment, message)

    def _leave_out(self, message: Message) -> None:
        if self.comm.rank == self.comm.size - 1:
            message[:-STATISTICS] = 0.0


class _KeepsOwn(Around):
    """Adds the statistics alone: each rank's gradient stays its own."""

    def __init__(self, inner: Reducer) -> None:
        super().__init__(inner)
        self._own: dict[int, tuple[Message, Message]] = {}

    def reduce(self, segment: int, message: Message) -> None:
        own = message[:-STATISTICS].copy()
        super().reduce(segment, message)
        message[:-STATISTICS] = own

    def post(self, segment: int, message: Message) -> None:
        self._own[segment] = message, message[:-STATISTICS].copy()
        super().post(segment, message)

    def complete(self, segment: int) -> float | None:
        done = super().complete(segment)
        message, own = self._own.pop(segment)
        message[:-STATISTICS] = own
        return done


def slow_factor(config: RunConfig, rank: int, ranks: int) -> float:
    """By how much `--slow` stretches what `rank` computes, 1.0 where it doesn't. LaunchError if it names no rank."""
    if config.slow_rank is None:
        return 1.0
    late, factor = config.slow_rank
    if late >= ranks:
        there = "only rank 0 runs" if ranks == 1 else f"ranks 0 to {ranks - 1} run"
        raise LaunchError(f"--slow {config.slow} names rank {late}, but {there}: name one of those, or start more")
    return factor if rank == late else 1.0


def slowed(call: Callable[..., Result], factor: float) -> Callable[..., Result]:
    """`call`, asleep afterwards until it has taken `factor` times as long; other processes have its core meanwhile."""
    if factor == 1.0:
        return call

    def late(*arguments: object) -> Result:
        began = time.monotonic()
        found = call(*arguments)
        time.sleep((factor - 1.0) * (time.monotonic() - began))
        return found

    return late
