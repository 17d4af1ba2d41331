"""The learning rate of a step: it grows with the global batch over the base batch, never with ranks.

rate(step) = learning_rate * (global batch / base batch) / (1 + decay * step)

Over the warm-up it rises in equal steps to that: from `learning_rate` itself where the batch made it larger (Goyal et
al., "Accurate, large minibatch SGD", 2017), else from its first equal part, so that no step is wasted on a rate of 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcnn.config import RunConfig


@dataclass(frozen=True)
class LearningRate:
    """`peak`: after scaling; `start`: where the warm-up begins; `warmup_steps`: over how many steps it rises."""

    peak: float
    start: float
    warmup_steps: float
    decay: float

    def at(self, step: int) -> float:
        """Rate of global step `step` (from 0)."""
        rate = self.peak
        if step < self.warmup_steps:
            rate = self.start + (self.peak - self.start) * step / self.warmup_steps
        return rate / (1.0 + self.decay * step)


def learning_rate(config: RunConfig, steps_per_epoch: int) -> LearningRate:
    """The schedule of `config`; without a base batch the rate is not scaled."""
    factor = config.global_batch / (config.base_batch or config.global_batch)
    peak = config.learning_rate * factor
    warmup_steps = config.warmup_epochs * steps_per_epoch
    start = config.learning_rate if factor > 1 else peak / (warmup_steps + 1)
    return LearningRate(peak, start, warmup_steps, config.decay)


def rate_line(config: RunConfig, rate: LearningRate) -> str:
    """The rate as a start prints it."""
    if config.base_batch is None:
        line = f"learning rate {rate.peak:g} at batch {config.global_batch}, not scaled"
    else:
        scaling = f"{config.learning_rate:g} x batch {config.global_batch} / base batch {config.base_batch}"
        line = f"learning rate {rate.peak:g} = {scaling}"
    return line + (f", warm-up over {rate.warmup_steps:g} steps" if rate.warmup_steps else "")


def rate_warning(config: RunConfig, documented: Mapping[str, Any]) -> str:
    """A line where the batch grew over the network's documented one and the rate did not; else empty."""
    usual = documented.get("global_batch")
    if config.base_batch is not None or usual is None or config.global_batch <= usual:
        return ""
    return (
        f"global batch {config.global_batch} is larger than this network's documented {usual}, and the learning rate "
        f"was not scaled: give --base-batch {usual} if {config.learning_rate:g} is meant for that batch"
    )
