"""What a run may not change of the one whose checkpoint it goes on from. CheckpointError where it does."""

from __future__ import annotations

from hpcnn.config import RunConfig
from hpcnn.data.dataset import Dataset
from hpcnn.errors import CheckpointError
from hpcnn.network.architecture import Architecture
from hpcnn.training.checkpoint import Checkpoint


def check_same_network(config: RunConfig, architecture: Architecture, resumed: Checkpoint | None) -> None:
    """A network goes on with its own weights."""
    if resumed is not None and resumed.architecture != architecture:
        raise CheckpointError(
            f"{config.resume}: holds {_network_line(resumed.architecture)}, this run builds "
            f"{_network_line(architecture)}: resume with the same network and data"
        )


def check_same_batches(config: RunConfig, train: Dataset, resumed: Checkpoint | None) -> None:
    """A network goes on with the scaling that it learnt with. In the middle of an epoch, the rows that are left are
    known only where they are dealt as before."""
    if resumed is None:
        return
    old = resumed.config
    if config.normalise != old.normalise:
        raise CheckpointError(
            f"{config.resume}: learnt from rows scaled by --normalise {old.normalise}, not {config.normalise}: "
            "leave --normalise out"
        )
    if resumed.epoch_step == 0:
        return
    if train.rows != resumed.rows:
        raise CheckpointError(
            f"{config.resume}: ends after step {resumed.epoch_step} of an epoch of {resumed.rows:,} rows, but "
            f"{config.train} has {train.rows:,}: resume with the same --train file"
        )
    mine = (config.global_batch, config.seed, config.validation_fraction, train.logical_shards)
    if mine != (old.global_batch, old.seed, old.validation_fraction, resumed.logical_shards):
        raise CheckpointError(
            f"{config.resume}: ends after step {resumed.epoch_step} of an epoch: resume with its --global-batch "
            f"{old.global_batch}, --seed {old.seed}, --validation-fraction {old.validation_fraction:g} and "
            f"--logical-shards {resumed.logical_shards}"
        )


def _network_line(architecture: Architecture) -> str:
    return f"{architecture.name} for {architecture.input_shape} and {architecture.num_classes} classes"
