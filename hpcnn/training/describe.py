"""What a run says of itself at its start: lines for people, and the facts of run.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcnn.config import RunConfig
from hpcnn.network.zoo import networks
from hpcnn.parallel.program import program_text, stage_of
from hpcnn.records import manifest
from hpcnn.training.learning_rate import rate_line, rate_warning
from hpcnn.training.prepare import Prepared
from hpcnn.training.process import Threads


@dataclass(frozen=True)
class HostFacts:
    """Of one rank, gathered on rank 0: its threads, and its machine as `records.manifest.machine` tells it."""

    threads: Threads
    machine: dict[str, Any]


def start_lines(config: RunConfig, prepared: Prepared, ranks: Sequence[HostFacts]) -> list[str]:
    """What runs, on which rows, at which rate; then warnings."""
    architecture, order, train = prepared.architecture, prepared.order, prepared.train
    threads = ranks[0].threads
    computes_with = config.backend_label.replace("_", " on ") + ", on a GPU a rank" * (config.device == "cuda")
    shape = "x".join(map(str, train.input_shape))
    lines = [
        f"network {architecture.name}, {architecture.size:,} parameters, on {computes_with}",
        f"strategy {config.strategy}, {_count(len(ranks), 'rank')} x {_count(threads.count, 'thread')} "
        f"(threads from {threads.source})",
        *_stage_lines(config, prepared),
        f"data {config.train}: {train.rows:,} rows of {shape}, {train.classes} classes; {train.format.describe()}",
        f"{order.training_rows:,} training and {prepared.validation_rows_in_all:,} validation rows in "
        f"{_count(prepared.logical_shards, 'logical shard')}, batch {config.global_batch}, "
        f"{_count(order.steps_per_epoch, 'step')} an epoch, seed {config.seed}",
        f"optimizer {config.optimizer}, {rate_line(config, prepared.rate)}",
    ]
    if prepared.test is not None:
        lines.insert(3, f"test {config.test}: {prepared.test.rows:,} rows; {prepared.test.format.describe()}")
    if config.resume:
        lines.append(f"resumed from {config.resume} after epoch {prepared.epoch}, step {prepared.step}")
    warnings = _warnings(config, prepared) | {facts.threads.warning for facts in ranks} | set(map(_narrowed, ranks))
    return lines + [f"warning: {warning}" for warning in sorted(warnings - {""})]


def _narrowed(facts: HostFacts) -> str:
    """Of OpenMP libraries that bind the process which loads them: all that it does shares the cores that are left."""
    left, host = len(facts.machine["affinity"]), facts.machine["host"]
    if left >= facts.threads.cores:
        return ""
    return (
        f"importing the framework has bound a rank on {host} to {left} of its {facts.threads.cores} cores: unset "
        "OMP_PROC_BIND, GOMP_CPU_AFFINITY and KMP_AFFINITY, and bind by the launcher (`hpcnn doctor`)"
    )


def _stage_lines(config: RunConfig, prepared: Prepared) -> list[str]:
    """Where a network is cut, for people."""
    grid = prepared.grid
    if grid.pp == 1:
        return []
    cut = " | ".join(f"{segment.layers[0].name} to {segment.layers[-1].name}" for segment in prepared.layout.segments)
    chunks = f" of {config.segments_a_stage} segments" if config.segments_a_stage > 1 else ""
    return [
        f"{_count(grid.dp, 'replica')} of {_count(grid.pp, 'stage')}{chunks}, schedule {config.schedule}, "
        f"{_count(config.micro_batches, 'micro-batch').replace('batchs', 'batches')} a step: {cut}"
    ]


def _stages(prepared: Prepared) -> list[dict[str, Any]]:
    """Of each segment: the stage that holds it, its layers (--stages has the first ones) and its parameters."""
    return [
        {
            "segment": number,
            "stage": stage_of(number, prepared.grid.pp),
            "layers": [layer.name for layer in segment.layers],
            "parameters": segment.size,
        }
        for number, segment in enumerate(prepared.layout.segments)
    ]


def _reducer(config: RunConfig, prepared: Prepared) -> dict[str, Any] | None:
    """What adds gradients, with all its switches, or None where nothing has to be added."""
    adds = prepared.fused or prepared.links.reducer
    if adds is None:
        return None
    return {"name": config.reducer, "options": dataclasses.asdict(adds.options), **adds.describe()}


def _warnings(config: RunConfig, prepared: Prepared) -> set[str]:
    """What is allowed but hardly meant."""
    documented = {network.name: network.history for network in networks()}.get(prepared.architecture.name, {})
    warnings = {rate_warning(config, documented)}
    if not prepared.build.segment_class.capabilities.computes:
        warnings.add(f"--backend {config.backend} computes nothing: times are what it was told, losses mean nothing")
    if config.inject:
        warnings.add(f"fault {config.inject} is injected on purpose")
    if config.slow_rank:
        warnings.add("rank {} is made to compute {:g} times as long on purpose".format(*config.slow_rank))
    if config.validation_fraction and not prepared.validation_rows_in_all:
        share, rows = f"{config.validation_fraction:g}", f"{prepared.train.rows:,}"
        warnings.add(f"--validation-fraction {share} of {rows} rows is less than one row: nothing is validated")
    if config.reducer != RunConfig.reducer and prepared.fused is None and prepared.links.reducer is None:
        warnings.add(f"--reducer {config.reducer} adds nothing: there is one replica")
    if config.resume and prepared.epoch >= config.epochs:
        done = f"{_count(prepared.epoch, 'epoch')} of {config.epochs}"
        warnings.add(f"{done} were done before: give --epochs above {prepared.epoch} to go on")
    if config.global_batch > prepared.order.training_rows:
        rows = f"the {prepared.order.training_rows:,} training rows"
        warnings.add(
            f"--global-batch {config.global_batch:,} is more than {rows}: each epoch is one step of all of them"
        )
    return warnings


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def run_facts(
    config: RunConfig, prepared: Prepared, ranks: Sequence[HostFacts], allocator: dict[str, Any]
) -> dict[str, Any]:
    """Everything of run.json that is known before the first step, but for its name, state and times."""
    train, order = prepared.train, prepared.order
    model = next(iter(prepared.parts.values())).model
    return {
        "config": config.to_dict(),
        "ranks": len(ranks),
        "grid": str(prepared.grid),
        "reducer": _reducer(config, prepared),
        "program": program_text(prepared.program),
        "stages": _stages(prepared),
        "logical_shards": prepared.logical_shards,
        "training_rows": order.training_rows,
        "validation_rows": prepared.validation_rows_in_all,
        "steps_per_epoch": order.steps_per_epoch,
        "network": prepared.architecture.to_dict(),
        "parameters": prepared.architecture.size,
        "data": {"rows": train.rows, "format": train.format.describe(), "input_shape": list(train.input_shape)},
        "backend": {**model.describe(), "options": dataclasses.asdict(model.options)},
        "versions": manifest.versions(),
        "mpi": {"version": mpi_version(), "library": manifest.libmpi_loaded()},
        "allocator": allocator,
        "threads": {"source": ranks[0].threads.source, "per_rank": [facts.threads.count for facts in ranks]},
        "hosts": [facts.machine["host"] for facts in ranks],
        "machine": [facts.machine for facts in ranks],
        "commit": manifest.git_commit(),
    }


def mpi_version() -> str:
    """First line of what the loaded MPI library says of itself."""
    from mpi4py import MPI

    return str(MPI.Get_library_version()).strip().split("\n")[0].rstrip("\0")
