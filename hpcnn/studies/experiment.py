"""Whether two runs are the same experiment: every setting that changes the mathematics, and no other.

What is known twice is taken from where it is resolved: the architecture itself rather than its name, the rate that
results rather than the flags it comes from. So a setting that is spelled in two ways is not a difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from hpcnn.studies.reading import Run

AS_THEY_ARE = (
    "seed", "global_batch", "optimizer", "momentum", "nesterov", "beta1", "beta2", "decay", "warmup_epochs",
    "weight_decay", "normalise", "validation_fraction",
)  # fmt: skip

_OF_ONE_OPTIMIZER = ("momentum", "nesterov", "beta1", "beta2")


def experiment_differences(baseline: Run, run: Run) -> tuple[str, ...]:
    """One line a setting that differs, with both values; empty for the same experiment."""
    left, right = _settings(baseline), _settings(run)
    if left["--optimizer"] != right["--optimizer"]:
        for settings in (left, right):
            settings.update({_flag(name): None for name in _OF_ONE_OPTIMIZER})
    lines = [
        f"not the same experiment: {name} is {_shown(left[name])} in the baseline and {_shown(right[name])} in the run"
        for name in left
        if left[name] != right[name]
    ]
    return tuple(_architecture_differences(baseline, run) + lines)


def _settings(run: Run) -> dict[str, Any]:
    config, manifest = run.config, run.manifest
    settings: dict[str, Any] = {_flag(name): config.get(name) for name in AS_THEY_ARE}
    settings["the number of logical shards"] = manifest.get("logical_shards", config.get("logical_shards"))
    settings["the file of training rows"] = PurePath(str(config.get("train"))).name
    settings["the number of training rows"] = manifest.get("training_rows")
    settings["the learning rate"] = _rate(config)
    settings["the number of steps"] = _planned_steps(config, manifest)
    settings["--weight-decay-kind"] = config.get("weight_decay_kind") if config.get("weight_decay") else None
    return settings


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _rate(config: Mapping[str, Any]) -> float | None:
    rate, batch, base = (config.get(name) for name in ("learning_rate", "global_batch", "base_batch"))
    return float(f"{rate * batch / base:.9g}") if rate and batch and base else rate


def _planned_steps(config: Mapping[str, Any], manifest: Mapping[str, Any]) -> Any:
    epochs, limit, an_epoch = config.get("epochs"), config.get("max_steps"), manifest.get("steps_per_epoch")
    if epochs is None or an_epoch is None:
        return (epochs, limit)
    return epochs * an_epoch if limit is None else min(epochs * an_epoch, limit)


def _architecture_differences(baseline: Run, run: Run) -> list[str]:
    left, right = baseline.manifest.get("network"), run.manifest.get("network")
    if not isinstance(left, dict) or not isinstance(right, dict):
        left, right = ({"layers": [one.config.get("network")]} for one in (baseline, run))
    names = f"{_network(baseline)} and {_network(run)}"
    start = "not the same experiment: the networks "
    if left.get("input_shape") != right.get("input_shape"):
        shapes = f"{left.get('input_shape')} in the baseline and {right.get('input_shape')} in the run"
        return [f"{start}{names} take rows of another shape: {shapes}"]
    ours, theirs = left.get("layers", []), right.get("layers", [])
    for place, (one, other) in enumerate(zip(ours, theirs, strict=False), start=1):
        if one != other:
            layers = f"{_shown(one)} in the baseline, {_shown(other)} in the run"
            return [f"{start}{names} differ from layer {place} on: {layers}"]
    if len(ours) != len(theirs):
        return [f"{start}{names} have {len(ours)} and {len(theirs)} layers"]
    return []


def _network(run: Run) -> str:
    network = run.manifest.get("network")
    return str(network.get("name") if isinstance(network, dict) else run.config.get("network"))


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
