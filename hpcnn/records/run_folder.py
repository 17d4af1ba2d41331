"""The folder that a run leaves, as rank 0 writes it: one method a file, each written whole.

Columns are part of the suite's interface: scripts read them. Names of runs are readable and never used twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcnn.errors import ResultsError
from hpcnn.records.arrivals import Lateness
from hpcnn.records.evidence import SeenReplica, SeenRow, cells, columns
from hpcnn.records.files import write_csv, write_json, write_text
from hpcnn.records.phases import Tally
from hpcnn.records.trace import trace_text

LOSS_COLUMNS = (
    "run", "epoch", "step", "samples", "learning_rate", "train_loss", "train_accuracy", "gradient_norm",
    "validation_loss", "validation_accuracy",
)  # fmt: skip
TIMING_COLUMNS = (
    "run", "rank", "host", "epoch", "phase", "count", "seconds", "minimum", "maximum", "bytes", "hidden_seconds",
)  # fmt: skip
LAYER_COLUMNS = ("layer", "parameters", "gradient_bytes", "flops", "forward_seconds", "backward_seconds")
PREDICTION_COLUMNS = ("ImageId", "Label")
MOST_RUNS = 99_999


@dataclass(frozen=True)
class LossRow:
    """One step. `samples`: training rows seen since the start. Rates and means are over the global batch."""

    epoch: int
    step: int
    samples: int
    learning_rate: float
    train_loss: float
    train_accuracy: float
    gradient_norm: float
    validation_loss: float | None = None
    validation_accuracy: float | None = None


@dataclass(frozen=True)
class RankTimes:
    """What one rank measured, as it is gathered on rank 0."""

    rank: int
    host: str
    wall_seconds: float
    rows: Sequence[tuple[int, str, Tally]]
    lateness: Lateness = field(default_factory=Lateness)


def run_name(network: str, backend: str, strategy: str, ranks: int, short_hash: str) -> str:
    """The readable part of a run's name; the folder adds the job's number or a counter."""
    return "_".join([network, backend, strategy, f"np{ranks}", short_hash])


def _names(name: str) -> Iterator[str]:
    """`name` with the job's number, where there is one, then with a counter too."""
    job = os.environ.get("SLURM_JOB_ID")
    stem = name if job is None else f"{name}_job{job}"
    if job is not None:
        yield stem
    for counter in range(1, MOST_RUNS + 1):
        yield f"{stem}_{counter:03d}"


class RunFolder:
    """`results/<run id>/` of one run; only rank 0 holds one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = path.name
        self.manifest: dict[str, Any] = {}

    @classmethod
    def create(cls, out: Path, name: str, run_id: str | None) -> RunFolder:
        """A new folder. Raises ResultsError where `run_id` exists already or the folder cannot be made."""
        try:
            out.mkdir(parents=True, exist_ok=True)
            for candidate in _names(name) if run_id is None else [run_id]:
                # mkdir decides between processes that want the same name at once.
                with contextlib.suppress(FileExistsError):
                    return cls._claim(out / candidate)
        except OSError as error:
            raise ResultsError(f"{error.filename}: cannot be made: {error.strerror}; choose another --out") from None
        if run_id is not None:
            raise ResultsError(f"{out / run_id}: exists already; give another --run-id, results are never overwritten")
        raise ResultsError(f"{out}: holds {MOST_RUNS:,} runs named {name}; choose another --out")

    @classmethod
    def _claim(cls, path: Path) -> RunFolder:
        path.mkdir()
        (path / "ranks").mkdir()
        return cls(path)

    def write_manifest(self, **changes: Any) -> None:
        """run.json, with what changed."""
        self.manifest.update(changes)
        write_json(self.path / "run.json", self.manifest)

    def write_losses(self, rows: Sequence[LossRow]) -> None:
        cells = (
            (self.run, row.epoch, row.step, row.samples, row.learning_rate, row.train_loss, row.train_accuracy,
             row.gradient_norm, row.validation_loss, row.validation_accuracy)
            for row in rows
        )  # fmt: skip
        write_csv(self.path / "loss.csv", LOSS_COLUMNS, cells)

    def write_timing(self, ranks: Sequence[RankTimes]) -> None:
        cells = (
            (self.run, times.rank, times.host, epoch, phase, tally.count, tally.seconds, tally.minimum, tally.maximum,
             tally.bytes, tally.hidden_seconds)
            for times in ranks
            for epoch, phase, tally in times.rows
        )  # fmt: skip
        write_csv(self.path / "timing.csv", TIMING_COLUMNS, cells)

    def write_evidence(self, rows: Sequence[SeenRow], replicas: Sequence[SeenReplica]) -> None:
        write_csv(self.path / "rows.csv", columns(SeenRow), cells(self.run, rows))
        write_csv(self.path / "replicas.csv", columns(SeenReplica), cells(self.run, replicas))

    def write_layers(self, rows: Sequence[Sequence[Any]]) -> None:
        write_csv(self.path / "layers.csv", LAYER_COLUMNS, rows)

    def write_predictions(self, labels: Sequence[Any]) -> None:
        write_csv(self.path / "predictions.csv", PREDICTION_COLUMNS, enumerate(labels, start=1))

    def write_generated(self, files: Mapping[str, str]) -> None:
        """Texts by name that a backend made for itself."""
        for name, text in files.items():
            write_text(self.path / name, text)

    def write_log(self, lines: Sequence[str]) -> None:
        write_text(self.path / "results.log", "\n".join(lines) + "\n")

    def write_trace(self, document: Mapping[str, Any]) -> None:
        write_text(self.path / "trace.json", trace_text(document))
