"""A framework's own data parallelism behind one call: forward, loss, backward and the sum over ranks of a whole step.

For `--reducer native`, whose program is `N0 U0`: what a framework does within, when it starts to send and in which
pieces, is its own affair. Before and after, everything is as with any reducer: weights are the caller's vector, the
gradient is a sum over rows that the loss head has divided once, and the update is ours.

A rank without rows in a step sends zeros. Where a framework can only average, its class undoes that at one place.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpcnn.errors import BackendError, ConfigError, TrainingError
from hpcnn.wrappers.contract import Array, SegmentModel

FUSED = {
    "torch": "torch_ddp:DdpStep",
    "keras_torch": "torch_ddp:DdpStep",
    "tensorflow": "tensorflow_strategy:StrategyStep",
    "keras_tensorflow": "tensorflow_strategy:StrategyStep",
}
"""Modules of this package and their classes, by what computes (hpcnn.backend_options.backend_label)."""
NONE_OF_ITS_OWN = {
    "keras_jax": "Keras over JAX shares work only within fit, over a mesh of devices, not over the ranks of mpirun",
    "keras_theano": "Theano has no data parallelism of its own",
    "lasagne": "Theano has no data parallelism of its own",
    "caffe": "Caffe's own is NCCL between GPUs, and this Caffe computes on CPUs",
    "simulated": "it computes nothing that could be added",
}


class Piece(NamedTuple):
    """A micro-batch of this rank: rows, masks and labels as the contract's forward_loss_backward takes them."""

    x: Array
    masks: Sequence[Array]
    labels: NDArray[np.int64]


class FusedStep(abc.ABC):
    """Around a whole network, the same on all ranks of `comm` (mpi4py), each of which makes all calls.

    Construction raises, alike on all ranks or not, BackendError where the ranks cannot meet, and ConfigError for an
    option that is not for this framework.
    """

    honours: ClassVar[frozenset[str]]
    """Names of the NativeOptions that mean something here."""

    def __init__(self, model: SegmentModel, comm: Any, options: Any) -> None:
        """`options`: NativeOptions of hpcnn.reducer_options."""
        self.model, self.comm, self.options = model, comm, options
        for item in dataclasses.fields(options):
            if item.name not in self.honours and getattr(options, item.name) != item.default:
                raise ConfigError(
                    f"[reducer.native] {item.name} is not for --backend {model.backend}: leave it out (there are "
                    f"{', '.join(sorted(self.honours))})"
                )

    @classmethod  # noqa: B027 (a framework may want nothing)
    def set_process_up(cls, comm: Any, options: Any) -> None:
        """Collective. What has to be before the framework computes anything, behind the wrapper's own set_process_up.

        BackendError where the framework has computed in this process already, or otherwise."""

    @abc.abstractmethod
    def gradient(self, pieces: Sequence[Piece], divisor: float) -> tuple[float, int]:
        """Collective. The sum over all ranks' pieces into the model's `gradient`, whatever it held before.

        Returns this rank's sum of row losses and rows classified rightly. `divisor`: of the loss head. `pieces` may be
        none, or have no rows. TrainingError where another rank is gone."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """What adds and how, for run.json."""

    def lost(self, *, late: bool) -> TrainingError:
        """What to raise where others are not there: `late`, or gone, as what was waiting says."""
        name, seconds = self.describe()["parallelism"], self.options.timeout_seconds
        words = "where each rank is stands in ranks/rN.json of the run"
        if late:
            return TrainingError(
                f"{name} waited {seconds:g} s for another rank: {words}; longer by --reducer-option timeout_seconds=N"
            )
        return TrainingError(f"{name} lost another rank: {words}")

    def close(self) -> None:  # noqa: B027 (a framework may hold nothing)
        """What it holds is given back; the model works on without it. Not collective: other ranks may be gone."""


def check_fused(label: str) -> None:
    """BackendError, with the reason, where a framework (by backend_label) has no parallelism of its own for us."""
    if label not in FUSED:
        reason = NONE_OF_ITS_OWN.get(label, "nothing is known of its own parallelism")
        raise BackendError(f"--reducer native is not for {label}: {reason}; choose --reducer mpi")


def fused_class(label: str) -> type[FusedStep]:
    """The class for a framework, imported. Raises as `check_fused` does."""
    check_fused(label)
    module, _, name = FUSED[label].partition(":")
    found: type[FusedStep] = getattr(importlib.import_module(f"hpcnn.wrappers.{module}"), name)
    return found
