"""Logits of checkpoints' networks for the rows of a CSV: logits_driver.py CSV OUT BACKEND[,OPTION=VALUE…] FOLDER…

Leaves OUT/NAME.npy of each FOLDER/NAME. For tests that need a backend of another environment than their own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from hpcnn.data.dataset import load_dataset
from hpcnn.training.checkpoint import load_checkpoint
from hpcnn.wrappers.registry import open_backend


def main(csv: str, out: str, backend: str, *folders: str) -> None:
    name, *options = backend.split(",")
    build = open_backend(name, dict(option.split("=", 1) for option in options), threads=1)
    rows = load_dataset(Path(csv), classes=10)
    for folder in map(Path, folders):
        checkpoint = load_checkpoint(folder)
        x = rows.batch(np.arange(rows.rows), checkpoint.normalisation)
        model = build(checkpoint.architecture.whole, checkpoint.weights, np.zeros_like(checkpoint.weights))
        np.save(Path(out) / f"{folder.name}.npy", model.infer(x))


if __name__ == "__main__":
    main(*sys.argv[1:])
