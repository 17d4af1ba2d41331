"""All that stands before the first step: data, network, weights, program; whatever can be refused is refused here.

Every step of it that may fail on one rank is followed by an agreement, so that all ranks end with the same error, said
once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.config import RunConfig
from hpcnn.data.agree import attempt
from hpcnn.data.dataset import Dataset
from hpcnn.data.normalise import Normalisation, fit_normalisation
from hpcnn.data.order import BatchOrder
from hpcnn.errors import CheckpointError, ConfigError, DataError
from hpcnn.network.architecture import Architecture
from hpcnn.network.initial import initial_weights
from hpcnn.network.native import Native
from hpcnn.network.network_file import get_network
from hpcnn.parallel.executor import Executor, FlatVectors
from hpcnn.parallel.grid import Grid, parse_grid
from hpcnn.parallel.inject import injected_divisor
from hpcnn.parallel.optimizers import Optimizer, make_optimizer
from hpcnn.parallel.program import Program
from hpcnn.parallel.strategies import make_program
from hpcnn.records.phases import PhaseClock
from hpcnn.training.arrays import load_rows
from hpcnn.training.checkpoint import Checkpoint, load_checkpoint
from hpcnn.training.handover import Given
from hpcnn.training.learning_rate import LearningRate, learning_rate
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.registry import OpenBackend, open_backend

MOST_PIECES = 65_536
"""Micro-batches of a step, or logical shards of a file: each costs memory and time of its own."""


@dataclass(frozen=True)
class Prepared:
    """One rank's share of a run. `shards`: the logical shards it owns; `validation_rows`: file rows of each of them.

    `epoch`: whole epochs done before, `epoch_step`: steps done of the next one.
    """

    config: RunConfig
    grid: Grid
    program: Program
    architecture: Architecture
    train: Dataset
    test: Dataset | None
    order: BatchOrder
    logical_shards: int
    shards: range
    validation_rows: dict[int, NDArray[np.int64]]
    validation_rows_in_all: int
    normalisation: Normalisation
    build: OpenBackend
    model: SegmentModel
    vectors: FlatVectors
    optimizer: Optimizer
    executor: Executor
    rate: LearningRate
    epoch: int
    epoch_step: int
    step: int
    samples: int


def prepare(config: RunConfig, comm: Any, clock: PhaseClock, threads: int, given: Given | None = None) -> Prepared:
    """Collective. `threads`: of this rank. Raises the errors of hpcnn.errors, on all ranks alike."""
    given = given or Given()
    grid, program = attempt(comm, lambda: _layout(config, comm))
    resumed = given.checkpoint or attempt(comm, lambda: load_checkpoint(config.resume) if config.resume else None)
    clock.switch("load")
    train, test = _load(config, comm, resumed, given)
    order = BatchOrder(train.rows, train.logical_shards, config.global_batch, config.validation_fraction, config.seed)
    normalisation = resumed.normalisation if resumed else fit_normalisation(config.normalise, train, order, comm)
    clock.switch("start")
    architecture = attempt(comm, lambda: given.architecture or _architecture(config, train, threads))
    attempt(comm, lambda: _same_network(config, architecture, resumed))
    build = attempt(comm, lambda: open_backend(config.backend, config.backend_option, threads))
    attempt(comm, lambda: _same_batches(config, train, resumed))
    vectors = FlatVectors(architecture.whole)
    optimizer = make_optimizer(config, architecture.size)
    attempt(comm, lambda: _start_values(config, architecture, vectors, optimizer, resumed))
    model = attempt(comm, lambda: build(architecture.whole, vectors.weights, vectors.gradient))
    executor = Executor(
        program, model, vectors, optimizer, clock, comm,
        divisor=injected_divisor(config.inject, comm.size), measure_norm=comm.rank == 0,
    )  # fmt: skip
    return Prepared(
        config=config,
        grid=grid,
        program=program,
        architecture=architecture,
        train=train,
        test=test,
        order=order,
        logical_shards=train.logical_shards,
        shards=train.shards,
        validation_rows={shard: order.validation_rows(shard) for shard in train.shards},
        validation_rows_in_all=train.rows - order.training_rows,
        normalisation=normalisation,
        build=build,
        model=model,
        vectors=vectors,
        optimizer=optimizer,
        executor=executor,
        rate=learning_rate(config, order.steps_per_epoch),
        epoch=resumed.epoch if resumed else 0,
        epoch_step=resumed.epoch_step if resumed else 0,
        step=resumed.step if resumed else 0,
        samples=resumed.samples if resumed else 0,
    )


def class_count(dataset: Dataset) -> int:
    """Classes of a dataset with labels. Raises DataError where they are too few to tell apart."""
    if dataset.classes is None or dataset.classes < 2:
        raise DataError(
            f"{dataset.path}: all labels are 0, there is nothing to learn; check --label-column, or give --classes"
        )
    return dataset.classes


def _layout(config: RunConfig, comm: Any) -> tuple[Grid, Program]:
    if config.train is None:
        raise ConfigError("no training rows: give --train FILE.csv")
    for flag, count in (("--micro-batches", config.micro_batches), ("--logical-shards", config.logical_shards or 1)):
        if count > MOST_PIECES:
            raise ConfigError(f"{flag} {count:,} is out of range: it must be at most {MOST_PIECES:,}")
    injected_divisor(config.inject, comm.size)
    grid = parse_grid(config.grid, comm.size)
    return grid, make_program(config.strategy, grid, comm.rank, config.micro_batches)


def _load(config: RunConfig, comm: Any, resumed: Checkpoint | None, given: Given) -> tuple[Dataset, Dataset | None]:
    shards = config.logical_shards or (resumed.logical_shards if resumed else None)
    train = load_rows(
        given.train or str(config.train), comm=comm, logical_shards=shards, global_batch=config.global_batch,
        classes=config.classes, input_shape=config.parsed_input_shape(), header=config.header,
        label_column=config.label_column, need_labels=True,
    )  # fmt: skip
    if config.test is None:
        return train, None
    # Where the flag says which column: the same one, or none. A name may be unknown to a test file without a header.
    label_column = "auto" if config.label_column == "auto" else str(train.format.label_column)
    test = load_rows(
        given.test or config.test, comm=comm, classes=train.classes, input_shape=train.input_shape,
        header=config.header, label_column=label_column, spare_ranks=True,
    )  # fmt: skip
    return train, test


def _architecture(config: RunConfig, train: Dataset, threads: int) -> Architecture:
    def complete(layer: Native, input_shape: tuple[int, ...]) -> Native:
        return open_backend(config.backend, config.backend_option, threads).complete(layer, input_shape)

    return get_network(config.network, train.input_shape, class_count(train), complete)


def _same_network(config: RunConfig, architecture: Architecture, resumed: Checkpoint | None) -> None:
    if resumed is not None and resumed.architecture != architecture:
        raise CheckpointError(
            f"{config.resume}: holds {_network_line(resumed.architecture)}, this run builds "
            f"{_network_line(architecture)}: resume with the same network and data"
        )


def _same_batches(config: RunConfig, train: Dataset, resumed: Checkpoint | None) -> None:
    """A network goes on with the scaling that it learnt with. In the middle of an epoch, the rows that are left are
    known only where they are dealt as before."""
    if resumed is None:
        return
    old = resumed.config
    if config.normalise != old.normalise:
        raise CheckpointError(
            f"{config.resume}: learnt from rows scaled by --normalise {old.normalise}, not {config.normalise}: "
            "leave --normalise out"
        )
    if resumed.epoch_step == 0:
        return
    if train.rows != resumed.rows:
        raise CheckpointError(
            f"{config.resume}: ends after step {resumed.epoch_step} of an epoch of {resumed.rows:,} rows, but "
            f"{config.train} has {train.rows:,}: resume with the same --train file"
        )
    mine = (config.global_batch, config.seed, config.validation_fraction, train.logical_shards)
    if mine != (old.global_batch, old.seed, old.validation_fraction, resumed.logical_shards):
        raise CheckpointError(
            f"{config.resume}: ends after step {resumed.epoch_step} of an epoch: resume with its --global-batch "
            f"{old.global_batch}, --seed {old.seed}, --validation-fraction {old.validation_fraction:g} and "
            f"--logical-shards {resumed.logical_shards}"
        )


def _network_line(architecture: Architecture) -> str:
    return f"{architecture.name} for {architecture.input_shape} and {architecture.num_classes} classes"


def _start_values(
    config: RunConfig,
    architecture: Architecture,
    vectors: FlatVectors,
    optimizer: Optimizer,
    resumed: Checkpoint | None,
) -> None:
    if resumed is None:
        vectors.weights[:] = initial_weights(architecture, config.seed)
    else:
        vectors.weights[:] = resumed.weights
        optimizer.load(resumed.optimizer, resumed.updates)
