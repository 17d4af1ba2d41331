"""Weak scaling, checked: every rank of every cell computes as many rows in each step as the ranks of all other cells.

Batches are dealt from logical shards, whose number doesn't depend on ranks (hpcnn.data.order): 100 rows dealt from 64
shards give two ranks 64 and 36. Times of such cells would tell of the deal, not of the machine.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcnn.data.order import BatchOrder
from hpcnn.data.shards import default_logical_shards, replica_shards
from hpcnn.errors import HpcnnError
from hpcnn.studies.cells import Cell
from hpcnn.studies.matrix import config_of
from hpcnn.training.layout import choose_grid

GROWING = ("grid", "global_batch", "rows", "logical_shards")
"""Settings that differ along one line of weak scaling, beside the ranks."""


@dataclass(frozen=True)
class Work:
    """Of a rank: rows in each step of an epoch, and of how many stages its own is one."""

    rows: tuple[int, ...]
    stages: int


def unequal_work(cells: Sequence[Cell]) -> dict[str, str]:
    """Reason by group, of weak cells whose ranks would not do what those of the line's smallest cell do."""
    lines: dict[str, dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        if cell.scaling == "weak":
            lines[_line(cell)].setdefault(cell.group, cell)
    reasons: dict[str, str] = {}
    for line in lines.values():
        reasons |= _of_line(sorted(line.values(), key=lambda cell: cell.ranks))
    return reasons


def _line(cell: Cell) -> str:
    """What its cells have in common."""
    same = {name: value for name, value in cell.settings.items() if name not in GROWING}
    a_rank = [cell.settings[name] / cell.ranks for name in ("global_batch", "rows")]
    return json.dumps([same, a_rank], sort_keys=True)


def _of_line(cells: Sequence[Cell]) -> Mapping[str, str]:
    reasons: dict[str, str] = {}
    first: tuple[Cell, Work] | None = None
    for cell in cells:
        try:
            work = _work(cell)
        except HpcnnError:
            continue  # which `hpcnn train` refuses as well, in better words
        if isinstance(work, str):
            reasons[cell.group] = work
        elif first is None:
            first = cell, work
        elif reason := _against(first, cell, work):
            reasons[cell.group] = reason
    ranks = math.lcm(*(cell.ranks for cell in cells))
    return {group: f"unequal work in weak scaling: {words.format(ranks=ranks)}" for group, words in reasons.items()}


def _work(cell: Cell) -> Work | str:
    """What each rank does, or how it differs between ranks."""
    config, rows = config_of(cell), int(cell.settings["rows"])
    grid = choose_grid(config, cell.ranks)
    shards = config.logical_shards or default_logical_shards(rows, config.global_batch)
    order = BatchOrder(rows, shards, config.global_batch, config.validation_fraction, config.seed)
    of_replicas = [replica_shards(shards, grid.dp, replica) for replica in range(grid.dp)]
    counts = [[order.count(step, mine) for mine in of_replicas] for step in range(order.steps_per_epoch)]
    for step, of_step in enumerate(counts):
        if len(set(of_step)) > 1:
            return (
                f"step {step} gives one rank {min(of_step)} rows and another {max(of_step)}, dealt from {shards} "
                "logical shards; give logical_shards = {ranks}, batch_a_rank and rows_a_rank multiples of it"
            )
    return Work(tuple(of_step[0] for of_step in counts), grid.pp)


def _against(first: tuple[Cell, Work], cell: Cell, work: Work) -> str:
    smallest, expected = first
    if work.stages != expected.stages:
        return (
            f"{cell.ranks} ranks hold {work.stages} stages of the network, {smallest.ranks} of them {expected.stages}, "
            "so a rank's part shrinks; keep pp of the grid, and let dp grow"
        )
    if work.rows != expected.rows:
        return (
            f"a rank of {cell.ranks} computes {sum(work.rows)} rows in {len(work.rows)} steps, of {smallest.ranks} "
            f"{sum(expected.rows)} in {len(expected.rows)}; give a rows_a_rank that is a multiple of batch_a_rank"
        )
    return ""
