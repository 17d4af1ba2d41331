"""checkpoint.h5: all that training goes on from, in the canonical layout, for any backend and any layout of ranks.

Plain HDF5 datasets and JSON attributes; nothing in it is ever executed.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.config import RunConfig
from hpcnn.data.normalise import Normalisation
from hpcnn.errors import CheckpointError, HpcnnError, ResultsError
from hpcnn.network.architecture import Architecture
from hpcnn.records.files import write_bytes

FORMAT = 1
NAME = "checkpoint.h5"
NUMBERS = ("updates", "rows", "logical_shards", "epoch", "epoch_step", "step", "samples")

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Checkpoint:
    """`weights` and each vector of `optimizer`: float32[architecture.size].

    `rows`: of the training file. `step`, `samples`: done so far; `epoch`: whole epochs of them, `epoch_step`: steps of
    the next one.
    """

    architecture: Architecture
    weights: Array
    optimizer: dict[str, Array]
    updates: int
    normalisation: Normalisation
    label_names: tuple[str, ...]
    config: RunConfig
    rows: int
    logical_shards: int
    epoch: int
    epoch_step: int
    step: int
    samples: int


def checkpoint_path(run: str | Path) -> Path:
    """The checkpoint of a run's folder, or `run` itself where it is a file."""
    path = Path(run)
    return path / NAME if path.is_dir() else path


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write whole or not at all. Raises CheckpointError, the old file untouched, where that fails."""
    import h5py

    # HDF5 that meets a full disk cannot close its file, and says so later at length: it writes into memory.
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        _write(file, checkpoint)
    try:
        write_bytes(path, content.getbuffer())
    except ResultsError as error:
        raise CheckpointError(str(error)) from None


def _write(file: Any, checkpoint: Checkpoint) -> None:
    file.attrs["hpcnn_format"] = FORMAT
    file.attrs["architecture"] = json.dumps(checkpoint.architecture.to_dict())
    file.attrs["config"] = json.dumps(checkpoint.config.to_dict())
    file.attrs["label_names"] = json.dumps(checkpoint.label_names)
    for name in NUMBERS:
        file.attrs[name] = getattr(checkpoint, name)
    file["normalisation/shift"] = checkpoint.normalisation.shift
    file["normalisation/scale"] = checkpoint.normalisation.scale
    for parameter in checkpoint.architecture.parameters:
        file[f"weights/{parameter.name}"] = parameter.view(checkpoint.weights)
        for name, vector in checkpoint.optimizer.items():
            file[f"optimizer/{name}/{parameter.name}"] = parameter.view(vector)
    if not checkpoint.optimizer:
        file.create_group("optimizer")


def load_checkpoint(run: str | Path) -> Checkpoint:
    """The checkpoint of a run's folder or file. Raises CheckpointError where it is missing or damaged."""
    import h5py

    path = checkpoint_path(run)
    if not path.is_file():
        raise CheckpointError(f"{path}: no checkpoint; a run leaves one at its end or with --checkpoint-every")
    try:
        with h5py.File(path, "r") as file:
            return _read(file)
    except (OSError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, HpcnnError) as error:
        raise CheckpointError(f"{path}: is not a checkpoint that this version reads: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    """HDF5 speaks in several lines, and a KeyError in quotation marks."""
    return " ".join(str(error.args[0] if isinstance(error, KeyError) and error.args else error).split())


def _read(file: Any) -> Checkpoint:
    if int(file.attrs["hpcnn_format"]) != FORMAT:
        raise ValueError(f"format {file.attrs['hpcnn_format']}, not {FORMAT}")
    architecture = Architecture.from_dict(json.loads(file.attrs["architecture"]))
    numbers = {name: int(file.attrs[name]) for name in NUMBERS}
    shift, scale = (_values(file, f"normalisation/{name}", architecture.input_shape[:1]) for name in ("shift", "scale"))
    label_names = json.loads(file.attrs["label_names"])
    if len(label_names) != architecture.num_classes:
        raise ValueError(f"{len(label_names)} label names for {architecture.num_classes} classes")
    return Checkpoint(
        architecture=architecture,
        weights=_vector(file, "weights", architecture),
        optimizer={name: _vector(file, f"optimizer/{name}", architecture) for name in file["optimizer"]},
        normalisation=Normalisation(shift, scale),
        label_names=tuple(label_names),
        config=RunConfig(**json.loads(file.attrs["config"])),
        **numbers,
    )


def _vector(file: Any, group: str, architecture: Architecture) -> Array:
    vector = np.empty(architecture.size, np.float32)
    for parameter in architecture.parameters:
        parameter.view(vector)[...] = _values(file, f"{group}/{parameter.name}", parameter.shape)
    return vector


def _values(file: Any, name: str, shape: tuple[int, ...]) -> Array:
    if name not in file:
        raise ValueError(f"{name} is missing")
    stored = file[name]
    if stored.shape != shape:
        raise ValueError(f"{name} is {stored.shape}, the architecture says {shape}")
    values: Array = np.asarray(stored[...], np.float32)
    return values
