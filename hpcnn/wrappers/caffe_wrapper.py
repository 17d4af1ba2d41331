"""Caffe behind the contract: a net for each slot that is open at once, over one set of parameters.

A Caffe net holds the activations of one forward, so two forwards through one net leave the first without its own and
its gradient wrong. Each open slot therefore has a net to itself, joined to the first one's parameters by `share_with`;
a slot that closes hands its net on. Nets keep their memory and are reshaped where rows differ.

Caffe owns its parameters' memory: the weights are copied into it before each forward, gradients are added out of it
after each backward. The loss head is here, on the logits that a net gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hpcnn.network.architecture import Segment
from hpcnn.network.native import Native
from hpcnn.wrappers.caffe_import import describe_blas, import_caffe, set_blas_threads
from hpcnn.wrappers.caffe_layers import inference_net, training_net
from hpcnn.wrappers.caffe_native import ask, native_text
from hpcnn.wrappers.caffe_net import TEST, TRAIN, CaffeNet
from hpcnn.wrappers.contract import Array, Capabilities, LossResult, SegmentModel
from hpcnn.wrappers.native import completed

caffe: Any = import_caffe()


@dataclass(frozen=True, eq=False)
class _SlotNet:
    net: CaffeNet
    gradients: list[tuple[Array, Array]]
    """Those of its parameters, and where in the caller's vector they are added."""


class CaffeSegment(SegmentModel):
    """A segment in Caffe on the CPU."""

    backend: ClassVar[str] = "caffe"
    capabilities: ClassVar[Capabilities] = Capabilities(weights_are_views=False, net_per_slot=True)

    @classmethod
    def set_process_up(cls, options: Any, threads: int | None) -> None:
        caffe.set_mode_cpu()
        count = options.intra_op_threads or threads
        if count is not None:
            set_blas_threads(count)

    def __init__(
        self,
        segment: Segment,
        weights: Array,
        gradient: Array,
        *,
        input_gradient: bool | None = None,
        options: Any = None,
    ) -> None:
        super().__init__(segment, weights, gradient, input_gradient=input_gradient, options=options)
        self._training = training_net(segment, native_text, input_gradient=self.input_gradient)
        self._inference = inference_net(segment, native_text)
        name = segment.architecture.name
        where = "" if segment.is_first and segment.is_last else f" (layers {segment.start} to {segment.stop - 1})"
        self._texts = {
            "train.prototxt": self._training.text(
                name, f"{name}{where}, as it trains: its loss and updates are computed outside"
            ),
            "deploy.prototxt": self._inference.text(name, f"{name}{where}, for inference"),
        }
        first = self._make_net()
        self._first = first.net
        self._weights = [(blob.data, own) for blob, own in self._pairs(first.net, weights)]
        self._idle = [first]
        self._deployed: CaffeNet | None = None
        self._slots: dict[int, _SlotNet] = {}

    @classmethod
    def complete_native(cls, layer: Native, input_shape: tuple[int, ...]) -> Native:
        return completed(layer, *ask(layer, input_shape))

    def files(self) -> dict[str, str]:
        return dict(self._texts)

    def _make_net(self, like: CaffeNet | None = None) -> _SlotNet:
        net = CaffeNet(self._training, self._texts["train.prototxt"], TRAIN, like)
        return _SlotNet(net, [(blob.diff, own) for blob, own in self._pairs(net, self.gradient)])

    def _pairs(self, net: CaffeNet, vector: Array) -> list[tuple[Any, Array]]:
        """Caffe's blobs, with their parts of a flat vector: its layouts are the canonical ones."""
        names = dict.fromkeys(parameter.layer for parameter in self.segment.parameters)
        blobs = [blob for name in names for blob in net.parameters(name)]
        views = [parameter.view(vector) for parameter in self.segment.parameters]
        return list(zip(blobs, views, strict=True))

    def _take_net(self, rows: int) -> _SlotNet:
        """One that has room for just these rows, else another one, else a new one."""
        alike = [one for one in self._idle if one.net.rows == rows]
        taken = (alike or self._idle or [self._make_net(self._first)])[0]
        taken.net.fit(rows)
        if taken in self._idle:
            self._idle.remove(taken)
        return taken

    def _copy_weights(self) -> None:
        for data, own in self._weights:
            data[...] = own

    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        if slot in self._slots:
            raise ValueError(f"slot {slot} is open already: close it before another forward")
        self.check_masks(masks)
        taken = self._take_net(len(x))
        self._copy_weights()
        output = taken.net.forward(x, masks)
        self._slots[slot] = taken
        return output

    def backward(self, slot: int, output_gradient: Array) -> Array | None:
        return self._close(self._slots.pop(slot), output_gradient)

    def loss_backward(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        taken = self._slots.pop(slot)
        loss, correct, slope = _loss(taken.net.output(), labels, divisor)
        return LossResult(loss, correct, self._close(taken, slope))

    def _close(self, taken: _SlotNet, slope: Array) -> Array | None:
        taken.net.backward(slope)
        with np.errstate(over="ignore", invalid="ignore"):
            for diff, own in taken.gradients:
                own += diff
        self._idle.append(taken)
        return taken.net.input_gradient() if self.input_gradient else None

    def infer(self, x: Array) -> Array:
        if self._deployed is None:
            self._deployed = CaffeNet(self._inference, self._texts["deploy.prototxt"], TEST, self._first)
        self._copy_weights()
        return self._deployed.forward(x, ())

    def describe(self) -> dict[str, Any]:
        return {"caffe": caffe.__version__, "mode": "CPU", "memory_format": "channels_first", **describe_blas()}


def _loss(logits: Array, labels: NDArray[np.int64], divisor: float) -> tuple[float, int, Array]:
    """Sum of row losses, rows whose first largest logit is their label's, and the logits' gradient over `divisor`."""
    own = np.arange(len(labels)), labels
    with np.errstate(invalid="ignore"):  # infinite logits give a loss of NaN, which is the caller's to see
        shifted = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=np.float64)
        exponents = np.exp(shifted)
        sums = exponents.sum(axis=1, keepdims=True)
        loss = float((np.log(sums[:, 0]) - shifted[own]).sum())
        slope = exponents / sums
    slope[own] -= 1.0
    correct = int(np.count_nonzero(logits.argmax(axis=1) == labels))
    return loss, correct, (slope / divisor).astype(np.float32)
