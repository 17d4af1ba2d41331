"""`hpcnn plan`: what a run would be, from its settings alone: grid, stages, schedule table, bubble, each rank's memory.

It starts no MPI, and imports no framework but for a native layer. Operations and bytes are counted, not measured;
memory is that of the arrays that the suite and any framework must hold: a framework's workspace comes on top.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from hpcnn.config import PIPELINES, RunConfig
from hpcnn.data.dataset import load_dataset
from hpcnn.data.shards import default_logical_shards, replica_shards
from hpcnn.errors import ConfigError
from hpcnn.network.architecture import Segment
from hpcnn.network.cost import FLOAT32_BYTES, layer_costs
from hpcnn.network.native import Complete, Native
from hpcnn.network.network_file import get_network
from hpcnn.network.shapes import Shape
from hpcnn.parallel.grid import Grid, read_grid
from hpcnn.parallel.optimizers import make_optimizer
from hpcnn.parallel.pipeline import peak_slots
from hpcnn.parallel.program import Operation
from hpcnn.parallel.table import timeline_table
from hpcnn.parallel.timeline import play, unit_cost
from hpcnn.training.layout import Layout, all_programs, checked, cut
from hpcnn.wrappers.registry import open_backend

USUAL_SHAPE, USUAL_CLASSES = (1, 28, 28), 10
"""Of the digits, for which the zoo's networks were made."""

MEMORY = ("weights", "gradient", "optimizer", "activations", "messages")


def plan_lines(config: RunConfig) -> Iterator[str]:
    """The plan of a run, line by line. Raises the errors of hpcnn.errors that the run would end with."""
    grid = _grid(config)
    all_programs(config, grid)
    shape, classes, rows_in_file = _data(config)
    architecture = get_network(config.network, shape, classes, _completer(config))
    segments = cut(config, grid, architecture, _refuse_to_measure)
    rows = _rows_of_a_replica(config, grid.dp, rows_in_file)
    pieces = [
        rows * (place + 1) // config.micro_batches - rows * place // config.micro_batches
        for place in range(config.micro_batches)
    ]
    layout = checked(grid, all_programs(config, grid, len(segments) // grid.pp), segments, pieces)
    yield (
        f"network {architecture.name}, {architecture.size:,} parameters, rows of {'x'.join(map(str, shape))}, "
        f"{classes} classes"
    )
    stages = f", schedule {config.schedule}" if grid.pp > 1 else ""
    yield f"strategy {config.strategy}{stages}, grid {grid}: {_count(grid.size, 'rank')}"
    yield (
        f"batch {config.global_batch:,}: {'at most ' if grid.dp > 1 else ''}{_count(rows, 'row')} a replica, in "
        f"{_count(config.micro_batches, 'micro-batch', 'es')} of at most {max(pieces):,}"
    )
    yield ""
    yield from _stage_lines(layout)
    yield ""
    yield from _schedule_lines(layout)
    yield ""
    yield from _memory_lines(config, layout, max(pieces))


def _grid(config: RunConfig) -> Grid:
    if config.grid is not None:
        return read_grid(config.grid)
    if config.strategy in PIPELINES:
        raise ConfigError(
            f"--strategy {config.strategy} has as many stages as ranks, but a plan has none: give --grid pp=4"
        )
    return Grid(dp=1)


def _data(config: RunConfig) -> tuple[Shape, int, int | None]:
    """Shape of a row, classes, and rows of the file where there is one."""
    shape = config.parsed_input_shape()
    if config.train is None:
        return shape or USUAL_SHAPE, config.classes or USUAL_CLASSES, None
    train = load_dataset(
        config.train, logical_shards=config.logical_shards, global_batch=config.global_batch, classes=config.classes,
        input_shape=shape, header=config.header, label_column=config.label_column, need_labels=True,
    )  # fmt: skip
    return train.input_shape, train.classes or USUAL_CLASSES, train.rows


def _completer(config: RunConfig) -> Complete:
    """What knows the tensors of a native layer: its framework, which is imported where a network has one."""

    def complete(layer: Native, input_shape: tuple[int, ...]) -> Native:
        return open_backend(config.backend, config.backend_option).complete(layer, input_shape)

    return complete


def _refuse_to_measure() -> Sequence[float]:
    raise ConfigError("--balance measured is for a run, which measures: plan with --balance flops, or with --stages")


def _rows_of_a_replica(config: RunConfig, replicas: int, rows_in_file: int | None) -> int:
    """The most rows of a global batch that one replica can get: a batch deals its rows to logical shards in turn."""
    batch = min(config.global_batch, rows_in_file or config.global_batch)
    shards = config.logical_shards or default_logical_shards(rows_in_file or batch, config.global_batch)
    own = max(len(replica_shards(shards, replicas, replica)) for replica in range(replicas))
    rounds, rest = divmod(batch, shards)
    return rounds * own + min(rest, own)


def _stage_lines(layout: Layout) -> Iterator[str]:
    """A line a segment: what it holds, and what it sends on for a row (its gradient comes back, as large)."""
    flops = [_flops(segment) for segment in layout.segments]
    rows = [("segment", "stage", "layers", "parameters", "MFLOP a row", "share", "bytes sent a row")]
    for number, segment in enumerate(layout.segments):
        first, last = segment.layers[0].name, segment.layers[-1].name
        sent = "" if segment.is_last or layout.grid.pp == 1 else f"{FLOAT32_BYTES * prod(segment.output_shape):,}"
        rows.append((
            str(number), str(number % layout.grid.pp), first if first == last else f"{first} to {last}",
            f"{segment.size:,}", f"{flops[number] / 1e6:.3f}", f"{flops[number] / sum(flops):.1%}", sent,
        ))  # fmt: skip
    yield from _columns(rows, left=(2,))


def _schedule_lines(layout: Layout) -> Iterator[str]:
    timeline = play(layout.programs, layout.grid)
    yield from timeline_table(timeline, layout.grid).splitlines()
    if layout.grid.pp == 1:
        return
    flops = [_flops(segment) for segment in layout.segments]

    def cost(rank: int, operation: Operation) -> float:
        return unit_cost(rank, operation) * flops[operation.segment]

    cut = play(layout.programs, layout.grid, cost).bubble
    yield f"bubble: {timeline.bubble:.1%} with segments of equal time (the table), {cut:.1%} with this cut's operations"


def _memory_lines(config: RunConfig, layout: Layout, rows: int) -> Iterator[str]:
    """A line a stage: the most bytes that its ranks hold at once, and the most slots that are open."""
    grid = layout.grid
    yield f"memory of a rank, in MB, and open slots (micro-batches of {rows:,} {'row' if rows == 1 else 'rows'})"
    table: list[tuple[str, ...]] = [("ranks", "slots", *MEMORY, "sum")]
    for stage in range(grid.pp):
        ranks = [replica * grid.pp + stage for replica in range(grid.dp)]
        needs = [0] * len(MEMORY)
        for number, segment in layout.held_by(stage).items():
            slots = peak_slots(layout.programs[stage], number)
            need = _bytes(config, segment, slots, rows, sends=grid.pp > 1)
            needs = [sum(pair) for pair in zip(needs, need, strict=True)]
        megabytes = [f"{need / 1e6:,.3f}" for need in (*needs, sum(needs))]
        table.append((_some(ranks), str(peak_slots(layout.programs[stage])), *megabytes))
    yield from _columns(table, left=(0,))


def _bytes(config: RunConfig, segment: Segment, slots: int, rows: int, *, sends: bool) -> tuple[int, ...]:
    """As `MEMORY` names them. A message that comes is held as long as its slot, and one more is waited for."""
    weights = FLOAT32_BYTES * segment.size
    state = len(make_optimizer(config, 1).state) * weights
    activations = sum(FLOAT32_BYTES * prod(shape) for shape in segment.shapes)
    into = 0 if segment.is_first else FLOAT32_BYTES * prod(segment.input_shape)
    out = 0 if segment.is_last else FLOAT32_BYTES * prod(segment.output_shape)
    messages = (slots + 1) * into + 2 * out if sends else 0
    return weights, weights, state, slots * rows * activations, rows * messages


def _flops(segment: Segment) -> int:
    """Forward operations of one row."""
    return sum(cost.flops for cost in layer_costs(segment.architecture)[segment.start : segment.stop])


def _some(ranks: Sequence[int]) -> str:
    words = list(map(str, ranks))
    return ", ".join(words if len(words) < 5 else [*words[:2], "...", words[-1]])


def _count(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else ending)


def _columns(rows: Sequence[Sequence[str]], left: Sequence[int]) -> Iterator[str]:
    """Aligned to the right, but for the columns of `left`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        yield "  ".join(
            text.ljust(width) if place in left else text.rjust(width) for place, (text, width) in enumerate(cells)
        ).rstrip()
