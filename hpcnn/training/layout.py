"""How a network lies over the ranks: the grid, where it is cut, every rank's program; checked before it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from hpcnn.config import PIPELINES, RunConfig
from hpcnn.network.architecture import Architecture, Segment
from hpcnn.network.cost import FLOAT32_BYTES
from hpcnn.network.overlap import partition_for_overlap
from hpcnn.network.partition import partition, partition_at
from hpcnn.parallel.checker import check_programs
from hpcnn.parallel.grid import Grid, parse_grid
from hpcnn.parallel.program import OF_REPLICAS, Kind, Operation, Program, stage_of
from hpcnn.parallel.reducers import STATISTICS
from hpcnn.parallel.strategies import make_program
from hpcnn.reducer_options import MpiOptions, resolve_reducer
from hpcnn.wrappers.registry import find_backend


@dataclass(frozen=True)
class Layout:
    """`programs`: one a rank of `grid`. `segments`: of the whole network, in order; the stages hold them in turn."""

    grid: Grid
    programs: tuple[Program, ...]
    segments: tuple[Segment, ...]

    def held_by(self, rank: int) -> dict[int, Segment]:
        """The segments of a rank, by their numbers."""
        _, stage, _ = self.grid.place(rank)
        stages = self.grid.pp
        return {number: one for number, one in enumerate(self.segments) if stage_of(number, stages) == stage}


def choose_grid(config: RunConfig, size: int) -> Grid:
    """Of `size` ranks: --grid, else all of them stages of a pipeline, or replicas. Raises as `parse_grid` does."""
    if config.grid is None and config.strategy == "pipeline":
        return Grid(dp=1, pp=size)
    return parse_grid(config.grid, size)


def all_programs(config: RunConfig, grid: Grid, chunks: int | None = None) -> tuple[Program, ...]:
    """One a rank. `chunks`: segments that each stage holds, by default what --chunks says. Raises as `make_program`."""
    settings = (config.micro_batches, config.schedule, chunks or config.segments_a_stage)
    native = config.reducer == "native"
    replica = [make_program(config.strategy, grid, rank, *settings, native=native) for rank in range(grid.pp * grid.tp)]
    return tuple(replica) * grid.dp


def cut(
    config: RunConfig, grid: Grid, architecture: Architecture, measure: Callable[[], Sequence[float]]
) -> tuple[Segment, ...]:
    """The network's segments, by what --balance or --stages says; of replicas without stages, by what is added when.

    `measure`: seconds of each layer, where asked for. Raises ConfigError or LaunchError where there is no such cut."""
    if config.strategy not in PIPELINES:
        return _cut_for_overlap(config, grid, architecture)
    count = grid.pp * config.segments_a_stage
    if (names := config.first_layers) is not None:
        return partition_at(architecture, names, count)
    return partition(architecture, count, measure() if config.balance == "measured" else None)


def _cut_for_overlap(config: RunConfig, grid: Grid, architecture: Architecture) -> tuple[Segment, ...]:
    """Whole, unless the reducer adds pieces; and by default where a cut costs the framework more than it hides."""
    options = resolve_reducer(config.reducer, config.reducer_option)
    if grid.dp == 1 or not isinstance(options, MpiOptions):
        return partition(architecture, 1)
    # the model knows how fast CPUs compute, and would cut for what a GPU has done long since
    cheap = config.device == "cpu" and find_backend(config.backend, config.backend_option).cheap_cuts
    wanted = options.segments or (None if cheap else 1)
    return partition_for_overlap(architecture, -(-config.global_batch // grid.dp), wanted)


def checked(grid: Grid, programs: tuple[Program, ...], segments: tuple[Segment, ...], rows: Sequence[int]) -> Layout:
    """The layout, its programs matched. `rows`: of each micro-batch. Raises ProgramError."""

    def size_of(rank: int, operation: Operation) -> int:
        segment = segments[operation.segment]
        if operation.kind in OF_REPLICAS:
            return FLOAT32_BYTES * (segment.size + STATISTICS)
        into = operation.kind in (Kind.ACCEPT, Kind.TRANSMIT)
        shape = segment.input_shape if into else segment.output_shape
        return FLOAT32_BYTES * rows[operation.micro_batch or 0] * prod(shape)

    check_programs(programs, grid, size_of)
    return Layout(grid, programs, segments)
