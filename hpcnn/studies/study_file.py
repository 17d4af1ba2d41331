"""A study file: which runs, how often, on how many ranks.

    repeats = 3
    warmup_steps = 5

    [run]                            settings of all runs, as in a run file; [backend.NAME], [reducer.NAME] too
    train = "data/train.csv"
    global_batch = 64

    [matrix]                         every combination of these is a cell; [[matrix]] may be given again
    scaling = "strong"
    backend = ["torch", "tensorflow"]
    ranks = [1, 2]

Strong scaling shares the same work among more ranks (`rows`: that many of the training file, by default all). Weak
scaling gives each rank the same: `batch_a_rank` and `rows_a_rank`, of which the batch and the rows are made.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcnn.config import OPTION_FIELDS, RunConfig
from hpcnn.config_sources import KERAS_BACKEND, read_toml, run_tables
from hpcnn.errors import ConfigError
from hpcnn.studies.cells import SCALINGS

OURS = ("out", "run_id", "resume", "progress", "settle_steps")
"""Settings of a run that the study decides."""
OF_A_BLOCK = ("scaling", "ranks", "rows", "rows_a_rank", "batch_a_rank", KERAS_BACKEND)
SETTINGS = tuple(name for name in RunConfig.__dataclass_fields__ if name not in OURS)
TABLES = ("run", "backend", "reducer", "matrix", "slurm")
NUMBERS = ("ranks", "rows", "rows_a_rank", "batch_a_rank")
WEAK = ("rows_a_rank", "batch_a_rank")


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """[slurm]: what `hpcnn study submit` asks for, beside the ranks and threads of the cells."""

    ntasks_per_node: int | None = None
    partition: str = ""
    account: str = ""
    time: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a study file says. `blocks`: its matrices, each a list of values by name. `minutes`: limit of one run."""

    path: Path
    name: str
    out: Path
    repeats: int = 1
    warmup_steps: int = 0
    oversubscribe: bool = False
    keep_checkpoints: bool = False
    minutes: float = 60.0
    run: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Mapping[str, Any]]]
    blocks: Sequence[Mapping[str, list[Any]]]
    slurm: Slurm
    text: str = ""


_KINDS: dict[str, tuple[type, Any, str]] = {
    "name": (str, lambda value: value not in ("", ".", "..") and "/" not in value, "a name without /"),
    "out": (str, bool, "a folder"),
    "repeats": (int, lambda value: value >= 1, "a whole number from 1"),
    "warmup_steps": (int, lambda value: value >= 0, "a whole number from 0"),
    "oversubscribe": (bool, lambda value: True, "true or false"),
    "keep_checkpoints": (bool, lambda value: True, "true or false"),
    "minutes": (float, lambda value: value > 0, "a number above 0"),
}


def read_study(path: Path) -> Study:
    """The study of a file. Raises ConfigError with the file, the key, and what it may be."""
    document = read_toml(path, "no such study file; jobs/studies has ready ones")
    for key in document:
        _known(f"{path}: ", key, (*_KINDS, *TABLES))
    given = {key: _checked(f"{path}: {key}", document[key], *_KINDS[key]) for key in _KINDS if key in document}
    file = run_tables(path, document)
    for key in file.run:
        if key in OURS:
            raise ConfigError(f"{path}: [run] {key} is what the study decides: leave it out")
    name = given.setdefault("name", path.stem)
    out = Path(given.pop("out", f"results/studies/{name}"))
    return Study(
        path=path, out=out, run=file.run, tables=file.tables, blocks=_blocks(path, document.get("matrix")),
        slurm=_slurm(path, document.get("slurm", {})), text=path.read_text(encoding="utf-8"), **given,
    )  # fmt: skip


def _known(where: str, key: str, names: Sequence[str]) -> None:
    if key not in names:
        near = difflib.get_close_matches(key, names, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
        raise ConfigError(f"{where}{key!r} is unknown: {remedy}")


def _checked(where: str, value: Any, kind: type, check: Any, limit: str) -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or not check(value):
        raise ConfigError(f"{where} is {value!r}: it must be {limit}")
    return value


def _blocks(path: Path, matrix: Any) -> list[dict[str, list[Any]]]:
    tables = [matrix] if isinstance(matrix, dict) else matrix
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path}: has no table [matrix]: say for instance ranks = [1, 2] under a line [matrix]")
    return [_block(f"{path}: [matrix] ", table) for table in tables]


def _block(where: str, table: Mapping[str, Any]) -> dict[str, list[Any]]:
    block = {}
    for key, value in table.items():
        if key in OURS:
            raise ConfigError(f"{where}{key} is what the study decides: leave it out")
        _known(where, key, (*OF_A_BLOCK, *SETTINGS))
        block[key] = list(value) if isinstance(value, list) else [value]
        if not block[key] or any(block[key].count(one) > 1 for one in block[key]):
            raise ConfigError(f"{where}{key} is {value!r}: give each value once")
    for key in OPTION_FIELDS:
        if not all(isinstance(value, dict) for value in block.get(key, ())):
            raise ConfigError(f"{where}{key} is {table[key]!r}: it must be tables of switches, as [{{}}, {{x = true}}]")
    for key in NUMBERS:
        for value in block.get(key, ()):
            _checked(f"{where}{key}", value, int, lambda number: number >= 1, "a whole number from 1")
    scaling = block.setdefault("scaling", ["none"])
    if len(scaling) != 1 or scaling[0] not in SCALINGS:
        raise ConfigError(f"{where}scaling is {table['scaling']!r}: it must be one of {', '.join(SCALINGS)}")
    _check_scaling(where, scaling[0], block)
    block.setdefault("ranks", [1])
    return block


def _check_scaling(where: str, scaling: str, block: Mapping[str, Any]) -> None:
    """Work a rank is what weak scaling holds, work in all what the others do."""
    if scaling == "weak":
        for one, other in (("rows_a_rank", "rows"), ("batch_a_rank", "global_batch")):
            if one not in block or other in block:
                raise ConfigError(f"{where}scaling weak holds the work of a rank: give {one}, without {other}")
    elif any(name in block for name in WEAK):
        raise ConfigError(f'{where}{" and ".join(WEAK)} belong to scaling = "weak", not to {scaling!r}')


def _slurm(path: Path, table: Any) -> Slurm:
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: 'slurm' is not a table: write partition, account, time under a line [slurm]")
    names = [item.name for item in dataclasses.fields(Slurm)]
    given: dict[str, Any] = {}
    for key, value in table.items():
        _known(f"{path}: [slurm] ", key, names)
        where = f"{path}: [slurm] {key}"
        if key == "options":
            if not isinstance(value, list) or not all(isinstance(one, str) and one.startswith("-") for one in value):
                raise ConfigError(f'{where} is {value!r}: it must be flags of sbatch, as ["--exclusive"]')
            given[key] = tuple(value)
        elif key == "ntasks_per_node":
            given[key] = _checked(where, value, int, lambda number: number >= 1, "a whole number from 1")
        else:
            given[key] = _checked(where, value, str, bool, "a text")
    return Slurm(**given)
