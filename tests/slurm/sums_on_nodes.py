"""Run under mpirun on two virtual nodes, of three ranks and two, by test_reducers.py: what the mpi reducer does there.

`python -m mpi4py -m tests.slurm.sums_on_nodes CSV OUT`. The ranks add, and train five steps, in groups of several
layouts. Rank 0 writes OUT/arrays.npz and OUT/facts.json, both by "LAYOUT, WAY[, posted]".
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.mpi.training_driver import five_steps
from tests.parallel.reducers.sums import reduced

LAYOUTS = {
    "2 and 2": (0, 1, 3, 4),
    "in turns": (0, 3, 1, 4),
    "3 and 1": (0, 1, 2, 3),
}
"""Ranks of the world, of which 0 to 2 are on the first node, in the order that a group has them."""
WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "no thread": {"progress": "none"},
    "float16": {"wire": "float16"},
    "bfloat16": {"wire": "bfloat16"},
    "flat": {"algorithm": "flat"},
}
SIZES = [2, 3, 40, 1000, 150_000]
"""From the statistics alone, with slices that are empty, to several blocks of a slice."""
TURNS = 2
TRAINED = {"auto": {}, "two segments": {"segments": 2}, "flat": {"algorithm": "flat"}}


def sums(comm: Any, layout: str, way: str, posted: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Collective. What rank 0 got, by turn and size, and whether all ranks got the same bits."""
    found = reduced(comm, "mpi", WAYS[way], SIZES, TURNS, posted)
    bits = b"".join(total.tobytes() for total in found.sums)
    name = f"{layout}, {way}" + (", posted" if posted else "")
    cases = [(turn, size) for turn in range(TURNS) for size in SIZES]
    arrays = {f"{name}, {turn}, {size}": total for (turn, size), total in zip(cases, found.sums, strict=True)}
    return arrays, {name: {"equal": len(set(comm.allgather(bits))) == 1, **found.described}}


def training(comm: Any, csv: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Collective. Five steps by each of `TRAINED`, and of one process on rank 0."""
    arrays, facts = {}, {}
    for way, options in TRAINED.items():
        found = five_steps(comm, csv, reducer="mpi", reducer_option=options)
        arrays |= {f"{way}, gradient": found.gradient, f"{way}, weights": found.weights}
        facts[f"trained, {way}"] = {"equal": found.replicas_equal, **found.reducer}
    if comm.rank == 0:
        alone = five_steps(MPI.COMM_SELF, csv)
        arrays |= {"alone, gradient": alone.gradient, "alone, weights": alone.weights}
    return arrays, facts


def main(csv: str, out: Path) -> None:
    world = MPI.COMM_WORLD
    hosts = world.allgather(socket.gethostname())
    arrays: dict[str, Any] = {}
    facts: dict[str, Any] = {"hosts": hosts}
    for layout, ranks in LAYOUTS.items():
        mine = world.rank in ranks
        comm = world.Split(0 if mine else MPI.UNDEFINED, ranks.index(world.rank) if mine else 0)
        found: list[Any] = []
        if mine:
            found = [sums(comm, layout, way, posted) for way in WAYS for posted in (False, True)]
            found += [training(comm, csv)] if layout == "2 and 2" else []
        for more_arrays, more_facts in world.bcast(found, ranks[0]):
            arrays |= more_arrays
            facts |= more_facts
    if world.rank == 0:
        np.savez(out / "arrays.npz", **arrays)
        (out / "facts.json").write_text(json.dumps(facts, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
