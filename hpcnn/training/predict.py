"""`hpcnn predict`: classes for the rows of a CSV from a run's checkpoint, whatever backend wrote it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn.config import RunConfig
from hpcnn.data.agree import Alone
from hpcnn.data.dataset import load_dataset
from hpcnn.errors import ConfigError, DataError, ResultsError
from hpcnn.records.files import write_csv
from hpcnn.records.phases import PhaseClock
from hpcnn.records.run_folder import PREDICTION_COLUMNS
from hpcnn.training.checkpoint import load_checkpoint
from hpcnn.training.evaluate import Evaluation, all_rows, evaluate
from hpcnn.training.process import decide_threads, set_threads
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
    checkpoint = load_checkpoint(run)
    architecture = checkpoint.architecture
    channels, height, width = architecture.input_shape
    dataset = load_dataset(
        data, comm=None, classes=architecture.num_classes, input_shape=(channels, height, width),
        label_column=label_column, header=header,
    )  # fmt: skip
    if dataset.input_shape != architecture.input_shape:
        raise DataError(f"{data}: rows are {dataset.input_shape}, the network takes {architecture.input_shape}")
    threads = decide_threads(None, os.environ, Alone()).count
    set_threads(threads, os.environ)
    build = open_backend(*_backend(checkpoint.config, backend, keras_backend), threads)
    gradient = np.zeros_like(checkpoint.weights)
    model = build(architecture.whole, checkpoint.weights, gradient)
    found = evaluate(model, dataset, checkpoint.normalisation, all_rows(dataset), Alone(), PhaseClock())
    labels = [checkpoint.label_names[place] for place in found.predicted]
    write_csv(out, PREDICTION_COLUMNS, enumerate(labels, start=1))
    return found


def _backend(trained: RunConfig, backend: str | None, keras_backend: str | None) -> tuple[str, dict[str, Any]]:
    """Name and options: those that trained, unless another is asked for."""
    name = backend or trained.backend
    options = dict(trained.backend_option) if name == trained.backend else {}
    if keras_backend is not None:
        if name != "keras":
            raise ConfigError(f"--keras-backend belongs to --backend keras, not to {name}: leave it out")
        options["backend"] = keras_backend
    return name, options
