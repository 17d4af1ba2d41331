"""`hpcnn predict`: classes for the rows of a CSV from a run's checkpoint, whatever backend wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn.config import RunConfig
from hpcnn.data.agree import Alone, attempt
from hpcnn.data.dataset import Dataset
from hpcnn.errors import ConfigError, ResultsError
from hpcnn.network.architecture import Architecture
from hpcnn.records.files import write_csv
from hpcnn.records.phases import PhaseClock
from hpcnn.records.run_folder import PREDICTION_COLUMNS
from hpcnn.training.arrays import Arrays, load_rows
from hpcnn.training.checkpoint import Checkpoint, load_checkpoint
from hpcnn.training.evaluate import Evaluation, all_rows, evaluate
from hpcnn.training.process import attempt_threads
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.registry import open_backend


def predict(
    run: Path,
    data: Path,
    out: Path,
    *,
    backend: str | None = None,
    keras_backend: str | None = None,
    label_column: str = "auto",
    header: str = "auto",
) -> Evaluation:
    """Write `ImageId,Label` to `out` (ids from 1); returns loss and accuracy too, where the file has labels.

    Raises CheckpointError, DataError, or ResultsError where `out` cannot be written.
    """
    if not out.parent.is_dir():
        raise ResultsError(f"{out}: the folder {out.parent} does not exist; make it, or give another --out")
    checkpoint, comm = load_checkpoint(run), Alone()
    dataset = rows_for(checkpoint.architecture, str(data), comm, label_column=label_column, header=header)
    model = model_of(checkpoint, *_backend(checkpoint.config, backend, keras_backend), comm)
    found = evaluate(model, dataset, checkpoint.normalisation, all_rows(dataset), comm, PhaseClock())
    labels = [checkpoint.label_names[place] for place in found.predicted]
    write_csv(out, PREDICTION_COLUMNS, enumerate(labels, start=1))
    return found


def rows_for(
    architecture: Architecture,
    source: str | Arrays,
    comm: Any,
    *,
    label_column: str,
    header: str,
    need_labels: bool = False,
) -> Dataset:
    """Collective. Rows for a network to evaluate; ranks beyond the shards hold none. Raises DataError."""
    channels, height, width = architecture.input_shape
    return load_rows(
        source, comm=comm, classes=architecture.num_classes, input_shape=(channels, height, width),
        label_column=label_column, header=header, need_labels=need_labels, spare_ranks=True,
    )  # fmt: skip


def model_of(
    checkpoint: Checkpoint, backend: str, options: Mapping[str, Any], comm: Any, threads: int | None = None
) -> SegmentModel:
    """Collective. The whole network in a backend, on the checkpoint's weights. `threads`: as --threads."""
    count = attempt_threads(threads, comm).count
    build = attempt(comm, lambda: open_backend(backend, options, count))
    gradient = np.zeros_like(checkpoint.weights)
    return attempt(comm, lambda: build(checkpoint.architecture.whole, checkpoint.weights, gradient))


def _backend(trained: RunConfig, backend: str | None, keras_backend: str | None) -> tuple[str, dict[str, Any]]:
    """Name and options: those that trained, unless another is asked for."""
    name = backend or trained.backend
    options = dict(trained.backend_option) if name == trained.backend else {}
    if keras_backend is not None:
        if name != "keras":
            raise ConfigError(f"--keras-backend belongs to --backend keras, not to {name}: leave it out")
        options["backend"] = keras_backend
    return name, options
