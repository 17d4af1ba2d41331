"""checkpoint.h5: all that training goes on from, in the canonical layout, for any backend and any layout of ranks.

Plain HDF5 datasets and JSON attributes; nothing in it is ever executed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.config import RunConfig
from hpcnn.data.normalise import Normalisation
from hpcnn.errors import CheckpointError, ConfigError, NetworkError
from hpcnn.network.architecture import Architecture

FORMAT = 1
NAME = "checkpoint.h5"

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Checkpoint:
    """`weights` and each vector of `optimizer`: float32[architecture.size]. `epoch`, `step`, `samples`: done so far."""

    architecture: Architecture
    weights: Array
    optimizer: dict[str, Array]
    updates: int
    normalisation: Normalisation
    label_names: tuple[str, ...]
    config: RunConfig
    logical_shards: int
    epoch: int
    step: int
    samples: int


def checkpoint_path(run: str | Path) -> Path:
    """The checkpoint of a run's folder, or `run` itself where it is a file."""
    path = Path(run)
    return path / NAME if path.is_dir() else path


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write whole or not at all. Raises CheckpointError, the old file untouched, where that fails."""
    import h5py

    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with h5py.File(temporary, "w") as file:
            _write(file, checkpoint)
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(f"{path}: cannot be written: {error}; free space or choose another --out") from None


def _write(file: Any, checkpoint: Checkpoint) -> None:
    file.attrs["hpcnn_format"] = FORMAT
    file.attrs["architecture"] = json.dumps(checkpoint.architecture.to_dict())
    file.attrs["config"] = json.dumps(checkpoint.config.to_dict())
    file.attrs["label_names"] = json.dumps(checkpoint.label_names)
    for name in ("updates", "logical_shards", "epoch", "step", "samples"):
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
    except (OSError, KeyError, ValueError, TypeError, NetworkError, ConfigError) as error:
        raise CheckpointError(f"{path}: is not a checkpoint that this version reads: {error}") from None


def _read(file: Any) -> Checkpoint:
    if int(file.attrs["hpcnn_format"]) != FORMAT:
        raise ValueError(f"format {file.attrs['hpcnn_format']}, not {FORMAT}")
    architecture = Architecture.from_dict(json.loads(file.attrs["architecture"]))
    numbers = {name: int(file.attrs[name]) for name in ("updates", "logical_shards", "epoch", "step", "samples")}
    return Checkpoint(
        architecture=architecture,
        weights=_vector(file["weights"], architecture),
        optimizer={name: _vector(group, architecture) for name, group in file["optimizer"].items()},
        normalisation=Normalisation(file["normalisation/shift"][:], file["normalisation/scale"][:]),
        label_names=tuple(json.loads(file.attrs["label_names"])),
        config=RunConfig(**json.loads(file.attrs["config"])),
        **numbers,
    )


def _vector(group: Any, architecture: Architecture) -> Array:
    vector = np.empty(architecture.size, np.float32)
    for parameter in architecture.parameters:
        stored = group[parameter.name]
        if stored.shape != parameter.shape:
            raise ValueError(f"{parameter.name} is {stored.shape}, the architecture says {parameter.shape}")
        parameter.view(vector)[...] = stored[...]
    return vector
