"""From a study file to its cells: every combination, in an order in which drift favours no one.

Each repeat runs every cell once, beginning elsewhere in the list. So a machine that slows down in the course of a study
does so for all of them, and no cell is always the first, on a cold machine, or the last:

    repeat 0:  a b c d e f
    repeat 1:  c d e f a b
    repeat 2:  e f a b c d
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hpcnn.backend_options import USUAL_OVER, backend_label
from hpcnn.config import OF_PIPELINES, PIPELINES, RunConfig
from hpcnn.config_sources import KERAS_BACKEND, KINDS
from hpcnn.errors import ConfigError
from hpcnn.studies.cells import Cell
from hpcnn.studies.study_file import WEAK, Study

ALWAYS = {
    "network": RunConfig.network, "backend": "torch", KERAS_BACKEND: None, "strategy": RunConfig.strategy,
    "grid": None, "schedule": None, "micro_batches": RunConfig.micro_batches, "reducer": RunConfig.reducer,
    "global_batch": RunConfig.global_batch, "epochs": RunConfig.epochs, "threads": 1, "rows": None,
}  # fmt: skip
"""Settings that every cell tells, with what they are where the study says nothing. An environment's defaults do not
count: a study is the same wherever it is started."""
_APART = ("scaling", "ranks", *WEAK)

Item = TypeVar("Item")


def expand(study: Study) -> list[Cell]:
    """All cells in the order in which they run. Raises ConfigError where two would be the same."""
    singles = [_cell(study, block["scaling"][0], values) for block in study.blocks for values in _products(block)]
    times = Counter(cell.key for cell in singles)
    for cell in singles:
        if times[cell.key] > 1:
            raise ConfigError(f"{study.path}: {cell.label} is in two matrices ({cell.scaling}): leave it out of one")
    return [
        replace(cell, key=f"{cell.key}_r{repeat}", repeat=repeat)
        for repeat, cell in interleaved(singles, study.repeats)
    ]


def interleaved(items: Sequence[Item], repeats: int) -> Iterator[tuple[int, Item]]:
    """(repeat, item): all items once a repeat, each repeat beginning a fair part of the list later."""
    for repeat in range(repeats):
        first = repeat * len(items) // repeats
        for item in (*items[first:], *items[:first]):
            yield repeat, item


def _products(block: Mapping[str, list[Any]]) -> Iterable[dict[str, Any]]:
    names = [name for name in block if name != "scaling"]
    for values in itertools.product(*(block[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def _cell(study: Study, scaling: str, values: Mapping[str, Any]) -> Cell:
    ranks = values["ranks"]
    given = {**study.run, **{name: value for name, value in values.items() if name not in _APART}}
    if scaling == "weak":
        given |= {"rows": ranks * values["rows_a_rank"], "global_batch": ranks * values["batch_a_rank"]}
    if study.warmup_steps:
        given["settle_steps"] = study.warmup_steps
    settings = {**ALWAYS, **given}
    backend, dash, over = str(settings["backend"]).partition("-")
    if backend == "keras" and dash:  # keras-jax is both
        settings |= {"backend": backend, KERAS_BACKEND: settings[KERAS_BACKEND] or over}
    for kind in KINDS:
        own = settings[kind] if isinstance(settings[kind], str) else ""
        settings[f"{kind}_option"] = {**study.tables[kind].get(own, {}), **given.get(f"{kind}_option", {})}
    if backend == "keras":
        over = settings["backend_option"].pop("backend", USUAL_OVER)
        settings[KERAS_BACKEND] = settings[KERAS_BACKEND] or over
    if settings["strategy"] in PIPELINES:
        settings["schedule"] = settings["schedule"] or OF_PIPELINES["schedule"]
    return Cell(key=_key(scaling, ranks, settings), repeat=0, ranks=ranks, scaling=scaling, settings=settings)


def _key(scaling: str, ranks: int, settings: Mapping[str, Any]) -> str:
    """What tells cells apart at a glance, and seven digits of all settings."""
    digest = hashlib.sha256(json.dumps([scaling, ranks, settings], sort_keys=True).encode()).hexdigest()[:7]
    over = {"backend": settings[KERAS_BACKEND]} if settings[KERAS_BACKEND] else {}
    words = [
        "" if scaling == "none" else scaling, backend_label(str(settings["backend"]), over), settings["strategy"],
        settings["grid"] or "", settings["schedule"] or "", settings["reducer"], f"np{ranks}",
        f"b{settings['global_batch']}", f"m{settings['micro_batches']}" if settings["micro_batches"] != 1 else "",
        digest,
    ]  # fmt: skip
    plain = [re.sub("[^A-Za-z0-9.-]+", "-", str(word))[:40] for word in words if word]
    return "_".join(plain)


def run_table(cell: Cell) -> dict[str, Any]:
    """The cell's settings as `RunConfig` takes them. KERAS_BACKEND is a switch of Keras."""
    settings = {name: value for name, value in cell.settings.items() if value is not None}
    settings.pop("rows", None)
    over = settings.pop(KERAS_BACKEND, None)
    if over:
        if settings["backend"] != "keras":
            raise ConfigError(
                f"keras_backend {over} belongs to backend keras, not to {settings['backend']}: leave it out"
            )
        settings["backend_option"] = {**settings["backend_option"], "backend": over}
    return settings


def config_of(cell: Cell) -> RunConfig:
    """What would run. Raises ConfigError where it cannot: a value out of range, settings that exclude each other."""
    return RunConfig(**run_table(cell))
