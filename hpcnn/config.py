"""Everything that a run can be told, in one frozen dataclass, checked in one place.

A field is a flag (`--global-batch`), a TOML key (`global_batch` in the table `[run]`) and a line of run.json at once,
so the three cannot drift apart (hpcnn.config_sources).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcnn.backend_options import DEFAULT_BACKEND, USUAL_OVER, backend_label, resolve_options
from hpcnn.config_fields import (
    as_float,
    check_value,
    flag_of,
    folder_name,
    fraction,
    kind_of,
    not_negative,
    positive,
    setting,
)
from hpcnn.errors import ConfigError
from hpcnn.reducer_options import TABLES, resolve_reducer

STRATEGIES = ("single", "data", "pipeline", "hybrid")
SCHEDULES = ("layer-by-layer", "gpipe", "1f1b", "interleaved", "zero-bubble")
BALANCES = ("flops", "measured", "explicit")
PIPELINES = ("pipeline", "hybrid")
OF_PIPELINES = {"schedule": "1f1b", "chunks": None, "balance": "flops", "stages": None}
"""Settings of theirs alone, with what they usually are."""
REDUCERS = tuple(TABLES)
DEVICES = ("cpu", "cuda")
OPTIMIZERS = ("sgd", "adam")
NORMALISATIONS = ("none", "scale", "standard")
WEIGHT_DECAY_KINDS = ("coupled", "decoupled")
ALLOCATORS = ("tuned", "system")
FAULTS = (
    "sum-without-mean", "mean-twice", "rate-not-scaled", "same-rows", "drifting-ranks", "rank-left-out", "same-shuffle",
    "shifted-labels", "other-dropout", "other-normalisation",
)  # fmt: skip

OPTION_FIELDS = ("backend_option", "reducer_option")
"""Settings that are tables of switches."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run. A global batch is the rows of one update over all ranks."""

    network: str = setting("cnn2d_3layer_fullconnected_3layer", "a name that `hpcnn networks` lists, or a TOML file")
    backend: str = setting(DEFAULT_BACKEND, "the framework that computes (`hpcnn backends`)")
    backend_option: Mapping[str, Any] = field(
        default_factory=dict, metadata={"help": "a switch of the framework (`hpcnn backends`); may be given again"}
    )
    strategy: str = setting("data", "how ranks share the work", choices=STRATEGIES)
    grid: str | None = setting(
        None, "ranks as replicas x stages x tensor parts, as dp=2,pp=2 (default: all dp; of pipeline: all pp)"
    )
    reducer: str = setting("mpi", "what adds gradients across ranks", choices=REDUCERS)
    reducer_option: Mapping[str, Any] = field(
        default_factory=dict, metadata={"help": "a switch of the reducer; may be given again"}
    )
    micro_batches: int = setting(
        1, "pieces a rank's rows of a step are computed in", check=positive, limit="at least 1"
    )
    schedule: str = setting("1f1b", "the order in which stages compute micro-batches", choices=SCHEDULES)
    chunks: int | None = setting(
        None, "segments a stage (default: 2 of interleaved, else 1)", check=positive, limit="at least 1"
    )
    balance: str = setting("flops", "what stages are cut by: operations, a measured pass, --stages", choices=BALANCES)
    stages: str | None = setting(None, "the first layer of each stage but the first, as conv2,dense1")
    logical_shards: int | None = setting(
        None, "logical shards of the file (default: min(64, batch, rows))", check=positive, limit="at least 1"
    )
    train: str | None = setting(None, "CSV of training rows")
    test: str | None = setting(None, "CSV of test rows, evaluated and predicted at the end")
    label_column: str = setting("auto", "auto, first, last, none, a header's name or a column from 0")
    header: str = setting("auto", "whether the CSV has a header", choices=("auto", "yes", "no"))
    input_shape: str | None = setting(None, "channels,height,width of a row (default: from the number of columns)")
    classes: int | None = setting(
        None, "number of classes (default: largest label + 1)", check=lambda n: n >= 2, limit="at least 2"
    )
    normalise: str = setting("scale", "what pixels are scaled by, over the training rows", choices=NORMALISATIONS)
    validation_fraction: float = setting(
        0.0, "share of the training rows kept for validation", check=fraction, limit="0 <= f < 1"
    )
    epochs: int = setting(10, "passes over the training rows", check=not_negative, limit="at least 0")
    max_steps: int | None = setting(None, "stop after so many steps in all", check=positive, limit="at least 1")
    settle_steps: int = setting(
        0, "first steps whose times are booked apart, under epoch 0: what compiles, caches that fill",
        check=not_negative, limit="at least 0",
    )  # fmt: skip
    global_batch: int = setting(50, "rows of one update, over all ranks", check=positive, limit="at least 1")
    base_batch: int | None = setting(
        None,
        "the batch that --learning-rate is meant for; the rate grows with the batch (default: no scaling)",
        check=positive,
        limit="at least 1",
    )
    optimizer: str = setting("adam", "the update's formula", choices=OPTIMIZERS)
    learning_rate: float = setting(1e-3, "rate at the base batch", check=positive, limit="above 0")
    momentum: float = setting(0.0, "momentum of sgd", check=fraction, limit="0 <= m < 1")
    nesterov: bool = setting(False, "Nesterov momentum in sgd")
    beta1: float = setting(0.9, "adam's first decay", check=fraction, limit="0 <= b < 1")
    beta2: float = setting(0.999, "adam's second decay", check=fraction, limit="0 <= b < 1")
    decay: float = setting(0.0, "the rate is divided by 1 + decay * step", check=not_negative, limit="at least 0")
    warmup_epochs: float = setting(
        0.0, "epochs over which the rate rises to its value", check=not_negative, limit="at least 0"
    )
    weight_decay: float = setting(0.0, "weight decay factor", check=not_negative, limit="at least 0")
    weight_decay_kind: str = setting("decoupled", "added to the gradient or to the update", choices=WEIGHT_DECAY_KINDS)
    seed: int = setting(
        1, "of weights, order, validation rows and dropout", check=lambda s: 0 <= s < 2**63, limit="0 to 2^63 - 1"
    )
    device: str = setting(
        "cpu", "where a rank computes: cuda, on a GPU of its own (torch, tensorflow)", choices=DEVICES
    )
    threads: int | None = setting(
        None, "threads a rank (default: OMP_NUM_THREADS, else cores / ranks)", check=positive, limit="at least 1"
    )
    allocator: str = setting(
        "tuned", "glibc's allocator kept from returning memory between steps, or as it is", choices=ALLOCATORS
    )
    out: str = setting("results", "folder in which the run's folder is made")
    run_id: str | None = setting(
        None,
        "name of the run's folder (default: made from the settings)",
        check=folder_name,
        limit="a name without / of at most 200 printable bytes",
    )
    resume: str | None = setting(None, "a run's folder or checkpoint to go on from")
    checkpoint_every: int = setting(
        0, "epochs between checkpoints; 0: at the end alone", check=not_negative, limit="at least 0"
    )
    trace: bool = setting(False, "write trace.json (opens in Perfetto)")
    progress: bool = setting(True, "a progress bar on rank 0's terminal")
    inject: str | None = setting(None, "make a fault on purpose, to see whether compare names it", choices=FAULTS)
    slow: str | None = setting(None, "RANK:FACTOR, a rank whose computing is made to take so many times as long")

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name in OPTION_FIELDS:
                if not isinstance(value, Mapping):
                    raise ConfigError(f"{flag_of(item)} takes switches by name, not {value!r}")
                continue
            if kind_of(item) is float and type(value) is int:
                object.__setattr__(self, item.name, value := as_float(value))
            check_value(item, value)
        self.parsed_input_shape()
        _ = self.slow_rank
        options = resolve_options(self.backend, self.backend_option, f"--backend-option of {self.backend}:")
        given = {name: getattr(options, name) for name in sorted(self.backend_option)}
        if self.backend == "keras" and options.backend != USUAL_OVER:
            given["backend"] = options.backend  # also where it is but the environment's default: elsewhere it is not
        object.__setattr__(self, "backend_option", dict(sorted(given.items())))
        switches = resolve_reducer(self.reducer, self.reducer_option, f"--reducer-option of {self.reducer}:")
        given = {name: getattr(switches, name) for name in sorted(self.reducer_option)}
        object.__setattr__(self, "reducer_option", given)
        if self.optimizer != "sgd" and (self.momentum or self.nesterov):
            raise ConfigError(
                f"--momentum and --nesterov belong to --optimizer sgd, not to {self.optimizer}: leave them out"
            )
        if self.nesterov and not self.momentum:
            raise ConfigError("--nesterov needs --momentum above 0: give for instance --momentum 0.9")
        self._check_stages()
        if self.reducer == "native" and self.strategy != "data":
            raise ConfigError(
                f"--reducer native, the framework's own parallelism, is for --strategy data, not for {self.strategy}: "
                "leave it out"
            )

    def _check_stages(self) -> None:
        if self.stages is not None and self.balance == "measured":
            raise ConfigError("--stages says where to cut, --balance measured where time does: leave one out")
        if self.balance == "explicit" and self.stages is None:
            raise ConfigError("--balance explicit needs --stages: give for instance --stages conv2,dense1")
        if self.strategy not in PIPELINES:
            for name, usual in OF_PIPELINES.items():
                if getattr(self, name) != usual:
                    raise ConfigError(
                        f"--{name} {getattr(self, name)} belongs to --strategy {' or '.join(PIPELINES)}, "
                        f"not to {self.strategy}: leave it out"
                    )

    @property
    def segments_a_stage(self) -> int:
        return self.chunks or (2 if self.schedule == "interleaved" else 1)

    @property
    def first_layers(self) -> list[str] | None:
        """`--stages` as names, or None where costs decide."""
        return None if self.stages is None else [name.strip() for name in self.stages.split(",")]

    def to_dict(self) -> dict[str, Any]:
        """All settings, as run.json keeps them."""
        return dataclasses.asdict(self)

    def short_hash(self) -> str:
        """Seven digits that tell settings apart; where results go and how progress shows do not count."""
        ignored = {"out", "run_id", "resume", "progress", "trace", "checkpoint_every"}
        settings = {key: value for key, value in self.to_dict().items() if key not in ignored}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:7]

    @property
    def backend_label(self) -> str:
        """The backend in names of runs and files."""
        return backend_label(self.backend, self.backend_option)

    @property
    def slow_rank(self) -> tuple[int, float] | None:
        """`--slow` as a rank and a factor."""
        if self.slow is None:
            return None
        rank, _, text = self.slow.partition(":")
        try:
            factor = float(text)
        except ValueError:
            factor = math.nan
        if not (rank.isascii() and rank.isdecimal() and 1 <= factor < math.inf):
            raise ConfigError(f"--slow {self.slow!r} is not RANK:FACTOR with a factor from 1: give for instance 1:5")
        return int(rank), factor

    def parsed_input_shape(self) -> tuple[int, int, int] | None:
        """`--input-shape` as numbers, or None where the columns decide."""
        if self.input_shape is None:
            return None
        parts = self.input_shape.replace("x", ",").split(",")
        if len(parts) != 3 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            raise ConfigError(
                f"--input-shape {self.input_shape!r} is not channels,height,width: give for instance 1,28,28"
            )
        channels, height, width = (int(part) for part in parts)
        return channels, height, width
