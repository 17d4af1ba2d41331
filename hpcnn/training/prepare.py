"""All that stands before the first step: data, network, weights, program; whatever can be refused is refused here.

Every step of it that may fail on one rank is followed by an agreement, so that all ranks end with the same error, said
once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.config import RunConfig
from hpcnn.data.agree import attempt
from hpcnn.data.dataset import Dataset
from hpcnn.data.normalise import Normalisation, fit_normalisation
from hpcnn.data.order import BatchOrder
from hpcnn.errors import ConfigError, DataError
from hpcnn.network.architecture import Architecture, Segment
from hpcnn.network.initial import segment_weights
from hpcnn.network.native import Native
from hpcnn.network.network_file import get_network
from hpcnn.parallel.executor import Executor
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.inject import check_dropout, check_fault, injected_divisor, injected_rate, slow_factor
from hpcnn.parallel.optimizers import make_optimizer
from hpcnn.parallel.parts import FlatVectors, Links, Part, make_links
from hpcnn.parallel.program import Program
from hpcnn.parallel.reducers import Reducer
from hpcnn.records.arrivals import Arrivals
from hpcnn.records.phases import PhaseClock
from hpcnn.training.arrays import load_rows
from hpcnn.training.checkpoint import Checkpoint, load_checkpoint
from hpcnn.training.gpus import claim_gpu
from hpcnn.training.handover import Given
from hpcnn.training.layer_costs import measure_layers
from hpcnn.training.layout import Layout, all_programs, checked, choose_grid, cut
from hpcnn.training.learning_rate import LearningRate, learning_rate
from hpcnn.training.progress import say
from hpcnn.training.reducing import begin_native, check_reducer, fused_step, with_reducer
from hpcnn.training.resumed import check_same_batches, check_same_network
from hpcnn.wrappers.fused import FusedStep
from hpcnn.wrappers.registry import OpenBackend, open_backend

MEASURED_ROWS = 64
"""Of the pass that --balance measured makes."""

MOST_PIECES = 65_536
"""Micro-batches of a step, or logical shards of a file: each costs memory and time of its own."""


@dataclass(frozen=True)
class Prepared:
    """One rank's share of a run. `shards`: the logical shards of its replica; `validation_rows`: file rows of each.

    `parts`: the segments that it holds, by their numbers in the network.

    `epoch`: whole epochs done before, `epoch_step`: steps done of the next one.
    """

    rank: int
    config: RunConfig
    layout: Layout
    links: Links
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
    parts: dict[int, Part]
    executor: Executor
    fused: FusedStep | None
    rate: LearningRate
    epoch: int
    epoch_step: int
    step: int
    samples: int

    @property
    def grid(self) -> Grid:
        return self.layout.grid

    def close(self) -> None:
        """Collective. What adds gradients gives back what it holds: nothing is trained any more."""
        for adds in (self.fused, self.links.reducer):
            if adds is not None:
                adds.close()

    @property
    def program(self) -> Program:
        """This rank's."""
        return self.layout.programs[self.rank]


def prepare(config: RunConfig, comm: Any, clock: PhaseClock, threads: int, given: Given | None = None) -> Prepared:
    """Collective. `threads`: of this rank. Raises the errors of hpcnn.errors, on all ranks alike."""
    given = given or Given()
    grid = attempt(comm, lambda: _grid(config, comm.size))
    links = make_links(comm, grid)
    # a framework's own reduction is inside of what it computes: who came late to it is not seen
    clock.arrivals = Arrivals("" if config.reducer == "native" else links.group)
    resumed = given.checkpoint or attempt(comm, lambda: load_checkpoint(config.resume) if config.resume else None)
    clock.switch("load")
    # Each stage's replicas load together, and find alike what is wrong with the rows; a disk may fail for some alone.
    train, test = attempt(comm, lambda: _load(config, links.replicas, resumed, given))
    order = BatchOrder(train.rows, train.logical_shards, config.global_batch, config.validation_fraction, config.seed)
    _check_settling(config, order.steps_per_epoch, resumed.step if resumed else 0)
    normalisation = (
        resumed.normalisation if resumed else fit_normalisation(config.normalise, train, order, links.replicas)
    )
    clock.switch("start")
    if config.device == "cuda":
        claim_gpu(comm)
    begin_native(config, comm, links, threads)
    architecture = attempt(comm, lambda: given.architecture or _architecture(config, train, threads))
    check_dropout(config.inject, architecture)
    attempt(comm, lambda: check_same_network(config, architecture, resumed))
    build = attempt(comm, lambda: open_backend(config.backend, config.backend_option, threads, config.device))
    attempt(comm, lambda: check_same_batches(config, train, resumed))
    links = with_reducer(config, comm, grid, links)
    layout = _layout(config, comm, grid, architecture, build)
    if comm.rank == 0:
        build.segment_class.on_compile = say
    parts = attempt(comm, lambda: _parts(config, layout.held_by(comm.rank), build, resumed, links.reducer))
    fused = attempt(comm, lambda: fused_step(config, links, parts))
    executor = attempt(
        comm,
        lambda: Executor(
            layout.programs[comm.rank], parts, clock, links,
            divisor=injected_divisor(config.inject, grid.dp), measure_norm=grid.place(comm.rank)[0] == 0,
            slow=slow_factor(config, comm.rank, comm.size), fused=fused, micro_batches=config.micro_batches,
        ),
    )  # fmt: skip
    return Prepared(
        rank=comm.rank,
        config=config,
        layout=layout,
        links=links,
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
        parts=parts,
        executor=executor,
        fused=fused,
        rate=learning_rate(injected_rate(config), order.steps_per_epoch),
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


def _check_settling(config: RunConfig, steps_per_epoch: int, done: int) -> None:
    """Raises ConfigError, on all ranks alike, where no step would be left whose time counts."""
    steps = min(config.epochs * steps_per_epoch, config.max_steps or math.inf) - done
    if config.settle_steps and config.settle_steps >= steps:
        raise ConfigError(
            f"--settle-steps {config.settle_steps} leaves none of {max(steps, 0)} steps to measure: "
            "give fewer, or more --epochs"
        )


def _grid(config: RunConfig, size: int) -> Grid:
    """The grid; what no data are needed for is refused before any are loaded."""
    if config.train is None:
        raise ConfigError("no training rows: give --train FILE.csv")
    for flag, count in (("--micro-batches", config.micro_batches), ("--logical-shards", config.logical_shards or 1)):
        if count > MOST_PIECES:
            raise ConfigError(f"{flag} {count:,} is out of range: it must be at most {MOST_PIECES:,}")
    grid = choose_grid(config, size)
    check_fault(config, grid.dp)
    slow_factor(config, 0, size)
    check_reducer(config)
    all_programs(config, grid)
    return grid


def _layout(
    config: RunConfig,
    comm: Any,
    grid: Grid,
    architecture: Architecture,
    build: OpenBackend,
) -> Layout:
    """Collective. Rank 0 measures for all, where cuts come from a measured pass: two would find two cuts."""

    def measure() -> list[float]:
        rows = min(MEASURED_ROWS, config.global_batch)
        return [row[-2] + row[-1] for row in measure_layers(build, architecture, rows, config.seed)]

    measured = config.balance == "measured"
    mine = attempt(comm, lambda: measure() if measured and comm.rank == 0 else None)
    costs = comm.bcast(mine) if measured else None
    pieces = config.micro_batches
    rows = -(-min(config.global_batch, MOST_PIECES) // grid.dp)
    sizes = [rows * (place + 1) // pieces - rows * place // pieces for place in range(pieces)]

    def lay_out() -> Layout:
        segments = cut(config, grid, architecture, lambda: costs or [])
        return checked(grid, all_programs(config, grid, len(segments) // grid.pp), segments, sizes)

    return attempt(comm, lay_out)


def _parts(
    config: RunConfig,
    segments: Mapping[int, Segment],
    build: OpenBackend,
    resumed: Checkpoint | None,
    reducer: Reducer | None,
) -> dict[int, Part]:
    """A rank's segments, built, on their first weights."""
    parts = {}
    for number, segment in segments.items():
        vectors, optimizer = FlatVectors(segment, reducer), make_optimizer(config, segment.size)
        if resumed is None:
            vectors.weights[:] = segment_weights(segment, config.seed)
        else:
            own = slice(segment.offset, segment.offset + segment.size)
            vectors.weights[:] = resumed.weights[own]
            optimizer.load({name: vector[own] for name, vector in resumed.optimizer.items()}, resumed.updates)
        model = build(segment, vectors.weights, vectors.gradient)
        if reducer is not None:
            reducer.lend(number, model.kept)
        parts[number] = Part(model, vectors, optimizer)
    return parts


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
        return open_backend(config.backend, config.backend_option, threads, config.device).complete(layer, input_shape)

    return get_network(config.network, train.input_shape, class_count(train), complete)
