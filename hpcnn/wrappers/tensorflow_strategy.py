"""TensorFlow's strategies around a network: our step on each replica, and the sum over replicas in its context.

MultiWorkerMirroredStrategy over the ranks, or MirroredStrategy over parts of one process's CPU, where `devices` asks
for it; for tensorflow, and for Keras over it, never by fit, which has other batches and another loss.

TensorFlow starts its servers before it computes anything, and cannot end them: one strategy a process, for as long as
it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from hpcnn.data.agree import attempt
from hpcnn.errors import BackendError, ConfigError
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.fused import FusedStep, Piece
from hpcnn.wrappers.rendezvous import hold_port, meeting_point
from hpcnn.wrappers.tensorflow_import import import_tensorflow
from hpcnn.wrappers.tensorflow_layers import shared

tf: Any = import_tensorflow()
Tensor = Any
_LOST = (
    tf.errors.DeadlineExceededError, tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
)  # fmt: skip


class Replicable(Protocol):
    """What of a wrapper runs on a replica: the tensorflow wrapper's segment, and what Keras over it computes with."""

    signature: Sequence[Any]
    """Of `fused`: labels, divisor, flat weights, rows, masks."""
    variables: Sequence[Any]
    """Of native layers, which hold weights of their own."""
    fused: Callable[..., tuple[Tensor, Sequence[Tensor], Tensor]]
    """Sum of row losses; gradients of `variables` and, last, of the flat weights; rows classified rightly."""

    def flat(self) -> Tensor:
        """The weights as they are now."""

    def add(self, gradients: Sequence[Tensor]) -> Any:
        """To the model's gradient, in the order of `fused`."""


class StrategyStep(FusedStep):
    """tensorflow, and Keras over tensorflow."""

    honours: ClassVar[frozenset[str]] = frozenset({"devices", "interface", "timeout_seconds"})

    @classmethod
    def set_process_up(cls, comm: Any, options: Any) -> None:
        _open(comm, options)

    def __init__(self, model: SegmentModel, comm: Any, options: Any) -> None:
        super().__init__(model, comm, options)
        if not getattr(model.options, "function", True):
            raise ConfigError(
                "[backend.tensorflow] function = false computes operation by operation, which no strategy does: "
                "leave it out"
            )
        self.strategy = _open(comm, options)
        self._part = _replicable(model)
        labels, divisor, flat, *rows = self._part.signature
        self._inputs: tuple[Any, ...] = (labels, *rows)
        self._step = tf.function(
            self._on_replicas,
            input_signature=[flat, divisor, flat, *self._inputs * options.devices],
            autograph=False,
        )

    def gradient(self, pieces: Sequence[Piece], divisor: float) -> tuple[float, int]:
        self.model.gradient.fill(0.0)
        own = [piece for piece in pieces if len(piece.labels)]
        # Between ranks once a step, as often on each; they may have rows in different numbers of micro-batches.
        alone = own[:-1] if self.comm.size > 1 else []
        results = [self._alone(piece, divisor) for piece in alone]
        results += [self._together(piece, divisor) for piece in own[len(alone) :] or [self._empty()]]
        return sum(loss for loss, _ in results), sum(correct for _, correct in results)

    def _alone(self, piece: Piece, divisor: float) -> tuple[float, int]:
        found = self.model.forward_loss_backward(piece.x, piece.masks, piece.labels, divisor)
        return found.loss_sum, found.correct

    def _together(self, piece: Piece, divisor: float) -> tuple[float, int]:
        count, rows = self.options.devices, len(piece.labels)
        cuts = [slice(rows * place // count, rows * (place + 1) // count) for place in range(count)]
        arrays: tuple[Any, ...] = (piece.labels, piece.x, *piece.masks)
        given = [tf.convert_to_tensor(array[cut]) for cut in cuts for array in arrays]
        gradient = self.model.gradient
        try:
            loss, gradients, correct = self._step(
                shared(gradient), tf.constant(divisor, tf.float32), self._part.flat(), *given
            )
        except _LOST as error:
            raise self.lost(late=isinstance(error, tf.errors.DeadlineExceededError)) from error
        gradient.fill(0.0)
        self._part.add(gradients)
        return float(loss), int(correct)

    def _empty(self) -> Piece:
        labels, x, *masks = [np.empty((0, *spec.shape[1:]), spec.dtype.as_numpy_dtype) for spec in self._inputs]
        return Piece(x, masks, labels)

    def _on_replicas(self, before: Tensor, divisor: Tensor, flat: Tensor, *given: Tensor) -> tuple[Any, ...]:
        """`before`: gradient of earlier micro-batches. `given`: labels, rows and masks of each replica here."""
        width, count = len(self._inputs), self.options.devices

        def share(context: Any) -> tuple[Tensor, ...]:
            place = context.replica_id_in_sync_group % count
            return (tf.zeros_like(before) if place else before, *given[width * place : width * (place + 1)])

        def step(before: Tensor, labels: Tensor, *rows: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
            def some() -> tuple[Tensor, list[Tensor], Tensor]:
                loss, gradients, correct = self._part.fused(labels, divisor, flat, *rows)
                return loss, list(gradients), tf.cast(correct, tf.int64)

            def none() -> tuple[Tensor, list[Tensor], Tensor]:
                zeros = [tf.zeros_like(weights) for weights in (*self._part.variables, flat)]
                return tf.constant(0.0), zeros, tf.constant(0, tf.int64)

            loss, (*others, gradient), correct = tf.cond(tf.size(labels) > 0, some, none)
            context = tf.distribute.get_replica_context()
            return loss, context.all_reduce(tf.distribute.ReduceOp.SUM, [*others, before + gradient]), correct

        local = self.strategy.experimental_local_results
        shares = self.strategy.experimental_distribute_values_from_function(share)
        losses, gradients, corrects = self.strategy.run(step, shares)
        return tf.add_n(local(losses)), [local(gradient)[0] for gradient in gradients], tf.add_n(local(corrects))

    def describe(self) -> dict[str, Any]:
        return {
            "parallelism": f"tf.distribute.{'MultiWorker' if self.options.devices == 1 else ''}MirroredStrategy",
            "replicas": self.strategy.num_replicas_in_sync,
            "devices": list(self.strategy.extended.worker_devices),
        }


def _replicable(model: Any) -> Replicable:
    """The part of a wrapper that computes in TensorFlow."""
    part: Replicable = model if model.backend == "tensorflow" else model.derivatives
    return part


@dataclass(frozen=True)
class _Opened:
    """What this process runs already: the ranks' addresses in their order, and this one's place; devices."""

    ranks: tuple[str, ...]
    rank: int
    devices: int
    strategy: Any


_opened: _Opened | None = None


def _open(comm: Any, options: Any) -> Any:
    """Collective. The strategy over the ranks of `comm`, or over the devices of one."""
    global _opened
    known = comm.allgather(None if _opened is None else _opened.ranks)
    attempt(comm, lambda: _check(comm, options, set(known)))
    if _opened is None:
        _opened = _start_ranks(comm, options) if options.devices == 1 else _start_devices(options.devices)
    return _opened.strategy


def _check(comm: Any, options: Any, known: set[tuple[str, ...] | None]) -> None:
    if options.devices > 1 and comm.size > 1:
        raise ConfigError(
            f"[reducer.native] devices = {options.devices} are of one process, and there are {comm.size} ranks: "
            "leave one of them out"
        )
    wanted = (comm.size, comm.rank, options.devices)
    if _opened is not None and (len(known) > 1 or (len(_opened.ranks), _opened.rank, _opened.devices) != wanted):
        raise BackendError(
            f"TensorFlow runs in this process already, with {len(_opened.ranks)} ranks of {_opened.devices} devices: "
            "start another process"
        )
    if _opened is None:
        (cpu,) = tf.config.list_physical_devices("CPU")
        try:
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(options.devices)]
            )
        except RuntimeError:
            raise BackendError(
                "TensorFlow has computed in this process already, and starts no strategy now: start another process"
            ) from None


def _start_devices(count: int) -> _Opened:
    return _Opened(("",), 0, count, tf.distribute.MirroredStrategy([f"CPU:{place}" for place in range(count)]))


def _start_ranks(comm: Any, options: Any) -> _Opened:
    """Collective. Every rank serves the others at an address that all know."""
    own = meeting_point(comm, options.interface)
    held = attempt(comm, lambda: hold_port(own.address))
    ranks = comm.allgather(f"{own.address}:{held.getsockname()[1]}")
    held.close()

    def start() -> Any:
        cluster = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": ranks}), task_type="worker", task_id=comm.rank, rpc_layer="grpc"
        )
        kinds = tf.distribute.experimental.CommunicationImplementation
        limit = tf.distribute.experimental.CommunicationOptions(
            timeout_seconds=options.timeout_seconds,
            implementation=kinds.NCCL if tf.config.get_visible_devices("GPU") else kinds.AUTO,
        )
        try:
            return tf.distribute.MultiWorkerMirroredStrategy(cluster, limit)
        except (tf.errors.OpError, RuntimeError) as error:
            words = str(error).splitlines()[0]
            raise BackendError(f"MultiWorkerMirroredStrategy does not start at {ranks[comm.rank]}: {words}") from error

    return _Opened(tuple(ranks), comm.rank, 1, attempt(comm, start))
