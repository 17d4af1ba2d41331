"""Reading what runs leave."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from hpcnn.training.checkpoint import Checkpoint, load_checkpoint

# What a run is named, and how long it took, differs; nothing else may.
CURVE = (
    "epoch", "step", "samples", "learning_rate", "train_loss", "train_accuracy", "gradient_norm", "validation_loss",
    "validation_accuracy",
)  # fmt: skip


def table(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def curve(folder: Path) -> list[tuple[str, ...]]:
    """The rows of loss.csv as texts, which are equal where the numbers are equal to the bit."""
    return [tuple(row[column] for column in CURVE) for row in table(folder / "loss.csv")]


def numbers(folder: Path, column: str) -> list[float]:
    return [float(row[column]) for row in table(folder / "loss.csv") if row[column]]


def manifest(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return value


def vectors(folder: Path) -> dict[str, Any]:
    """Weights and optimizer state of the checkpoint, by name."""
    checkpoint: Checkpoint = load_checkpoint(folder)
    return {"weights": checkpoint.weights, **checkpoint.optimizer}
