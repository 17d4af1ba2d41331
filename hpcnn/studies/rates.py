"""The learning rate that does not grow with the batch: told by the rates of loss.csv, or by two runs' batches."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from hpcnn.config import RunConfig
from hpcnn.studies.reading import Run
from hpcnn.training.learning_rate import learning_rate

SAME_RATE = 1e-6
"""Relative difference of learning rates that another order of the same factors can make."""


def rate_causes(*runs: Run) -> tuple[str, ...]:
    """Of each run whose last step went at the rate that its settings give without their base batch."""
    found = []
    for run in runs:
        batch, base = run.config.get("global_batch"), run.config.get("base_batch")
        if not run.steps or not base or base == batch:
            continue
        seen = float(run.losses["learning_rate"][-1])
        scaled, not_scaled = (_rate(run, config) for config in (run.config, {**run.config, "base_batch": None}))
        if _close(seen, not_scaled) and not _close(seen, scaled):
            found.append(
                f"learning rate is not scaled with the batch: it is {seen:.6g} in step {run.last_step}, where batch "
                f"{batch} over base batch {base} makes it {scaled:.6g}, in {run.name}"
            )
    return tuple(found)


def batch_causes(baseline: Run, run: Run) -> tuple[str, ...]:
    """Where two runs have other batches, and the same rate all the same."""
    batches = [int(one.config.get("global_batch") or 0) for one in (baseline, run)]
    rates = [float(one.losses["learning_rate"].max()) for one in (baseline, run) if one.steps]
    if 0 in batches or batches[0] == batches[1] or len(rates) < 2 or not _close(*rates):
        return ()
    factor = batches[1] / batches[0]
    return (
        f"learning rate is not scaled with the batch: the batch is {factor:.4g} times the baseline's, the rate the "
        f"same, in {run.name}",
    )


def _rate(run: Run, config: Mapping[str, Any]) -> float:
    steps = int(run.manifest.get("steps_per_epoch") or 1)
    return learning_rate(cast(RunConfig, SimpleNamespace(**config)), steps).at(run.last_step or 0)


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= SAME_RATE * abs(other)
