"""DistributedDataParallel around a segment in torch: what its backward finds is added over ranks as it goes.

DDP hooks into the weights' gradients, which are views of the caller's vector, and writes what comes of them back into
these, so nothing is copied here. It learns where to go on from its own forward; so the segment's forward in training is
led through it, and the segment's own loss and backward do the rest.

DDP averages over ranks. The sum that we want is the average of gradients that are as many times as large: the divisor
of the loss head is divided by the number of ranks, here and nowhere else.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Protocol

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # before there is a group, which the defaults in it would keep for ever
from torch.nn.parallel import DistributedDataParallel

from hpcnn.data.agree import attempt
from hpcnn.errors import BackendError
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.fused import FusedStep, Piece
from hpcnn.wrappers.import_alone import during
from hpcnn.wrappers.rendezvous import meeting_point
from hpcnn.wrappers.torch_vectors import Shared

Tensor = torch.Tensor


class Trainable(Protocol):
    """What of a wrapper DDP goes around: the torch wrapper's segment, and what Keras over torch computes with."""

    leaves: Sequence[torch.nn.Parameter]
    in_training: Callable[..., Tensor]
    """What a forward in training calls."""


class Network(torch.nn.Module):
    """The weights, and the forward over them. Without arguments: zero, whose gradients are zeros."""

    def __init__(self, part: Trainable) -> None:
        super().__init__()
        self.leaves = torch.nn.ParameterList(part.leaves)
        self._in_training = part.in_training

    def forward(self, *inputs: Any) -> Tensor:
        if inputs:
            return self._in_training(*inputs)
        return torch.stack([leaf.flatten()[:0].sum() for leaf in self.leaves]).sum()


class DdpStep(FusedStep):
    """torch and Keras over torch, through gloo; torch with --device cuda through NCCL (not run on a GPU yet)."""

    honours: ClassVar[frozenset[str]] = frozenset(
        {"bucket_cap_mb", "find_unused_parameters", "interface", "timeout_seconds"}
    )

    def __init__(self, model: SegmentModel, comm: Any, options: Any) -> None:
        if options.devices != 1:
            raise BackendError(
                f"[reducer.native] devices = {options.devices} in one process is torch.nn.DataParallel, which computes "
                f"on one device where there are no GPUs: start {options.devices} ranks instead (mpirun -np)"
            )
        super().__init__(model, comm, options)
        self._part = _trainable(model)
        self._alone = self._part.in_training
        vectors: Shared | None = getattr(self._part, "vectors", None)  # of Keras' torch there are none but the caller's
        self._held = vectors.held if vectors else contextlib.nullcontext
        self._library = "nccl" if self._part.leaves[0].is_cuda else "gloo"
        own = meeting_point(comm, options.interface)
        interface = {f"{name}_SOCKET_IFNAME": own.interface for name in ("GLOO", "NCCL")}
        store = _store(comm, comm.bcast(own.address), timedelta(seconds=options.timeout_seconds))
        with during(os.environ, interface):
            self.ddp = attempt(comm, lambda: self._wrapped(store))
        self._part.in_training = self.ddp

    def _wrapped(self, store: Any) -> DistributedDataParallel:
        """Collective, within torch: a rank that fails alone lets the others wait for `timeout_seconds`."""
        limit = timedelta(seconds=self.options.timeout_seconds)
        with _meeting():
            dist.init_process_group(
                self._library, store=store, rank=self.comm.rank, world_size=self.comm.size, timeout=limit
            )
            return DistributedDataParallel(
                Network(self._part),
                device_ids=[self._part.leaves[0].device] if self._library == "nccl" else None,
                bucket_cap_mb=self.options.bucket_cap_mb,
                find_unused_parameters=self.options.find_unused_parameters,
            )

    def gradient(self, pieces: Sequence[Piece], divisor: float) -> tuple[float, int]:
        self.model.gradient.fill(0.0)
        with self._held():
            return self._sum(pieces, divisor)

    def _sum(self, pieces: Sequence[Piece], divisor: float) -> tuple[float, int]:
        own = [piece for piece in pieces if len(piece.labels)]
        try:
            with self.ddp.no_sync():
                results = [self._piece(piece, divisor) for piece in own[:-1]]
            if own:
                results.append(self._piece(own[-1], divisor))
            else:
                self.ddp().backward()
            self.ddp._check_reducer_finalized()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if "finished reduction" in str(error):
                raise BackendError(
                    "DistributedDataParallel: a weight had no part in the loss, as a native layer may leave one: give "
                    "--reducer-option find_unused_parameters=true"
                ) from error
            if _of_others(error):
                raise self.lost(late="imed out" in str(error)) from error
            raise
        return sum(loss for loss, _ in results), sum(correct for _, correct in results)

    def _piece(self, piece: Piece, divisor: float) -> tuple[float, int]:
        found = self.model.forward_loss_backward(piece.x, piece.masks, piece.labels, divisor / self.comm.size)
        return found.loss_sum, found.correct

    def describe(self) -> dict[str, Any]:
        return {
            "parallelism": "torch.nn.parallel.DistributedDataParallel",
            "library": self._library,
            "bucket_cap_mb": self.ddp.bucket_bytes_cap / 2**20,
            "find_unused_parameters": self.options.find_unused_parameters,
        }

    def close(self) -> None:
        if not hasattr(self, "ddp"):
            return
        self._part.in_training = self._alone
        del self.ddp
        dist.destroy_process_group()
        # What is left of the group ends its threads, which must not be while Python ends:
        # https://github.com/pytorch/pytorch/pull/179291
        gc.collect()


def _trainable(model: Any) -> Trainable:
    """The part of a wrapper that computes in torch."""
    part: Trainable = model if model.backend == "torch" else model.derivatives
    return part


def _store(comm: Any, address: str, limit: timedelta) -> Any:
    """Collective. Through which ranks tell each other where they listen. Rank 0's, which chooses its port itself."""

    def join(port: int) -> Any:
        with _meeting():
            return dist.TCPStore(  # type: ignore[attr-defined]
                address, port, comm.size, comm.rank == 0, timeout=limit, wait_for_workers=False
            )

    def serve() -> Any:
        if dist.is_initialized():
            raise BackendError("torch.distributed runs in this process already: start another process")
        return join(0) if comm.rank == 0 else None

    served = attempt(comm, serve)
    port = comm.bcast(served.port if served else None)
    return attempt(comm, lambda: served or join(port))


@contextlib.contextmanager
def _meeting() -> Iterator[None]:
    """What torch raises where ranks do not find each other, in one line."""
    try:
        yield
    except RuntimeError as error:
        if not _of_others(error):
            raise
        raise BackendError(
            f"DistributedDataParallel cannot let the ranks meet: {str(error).splitlines()[0]}"
        ) from error


def _of_others(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or "gloo" in str(error)
