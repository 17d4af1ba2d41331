"""What a framework has to do for a strategy: forward and backward of a segment, on flat vectors, with slots.

A strategy knows nothing else of a framework, and a wrapper nothing of ranks.

    weights, gradient   flat contiguous float32 vectors in the canonical layout, owned by the caller, who updates
                        weights and reduces gradient in place; a wrapper that cannot view them copies at one place
    slot                one forward whose backward is still to come; any number may be open, in any order
    masks               one float32 array of 0 or 1/(1-rate) a dropout of the segment, shaped like its input
    divisor             rows of the global batch: the loss head divides by it, once, and nothing else ever does

All arrays that cross the contract are NumPy, float32, C-contiguous, rows first: x is (rows, channels, height, width)
or (rows, units). What is given to a forward or to a backward_input, and what a forward returns, is not written to until
its slot is closed; a wrapper never writes to an array that it has returned.

A backward comes in one call (backward, loss_backward), which closes the slot, or in two (for zero-bubble schedules, Qi
et al., 2023, https://arxiv.org/abs/2401.10241): backward_input or loss_backward_input gives the input's gradient and
leaves the slot open, backward_weights adds to `gradient` and closes it. Any calls on other slots may stand between.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from hpcnn.backend_options import resolve_options
from hpcnn.errors import BackendError
from hpcnn.network.architecture import Segment
from hpcnn.network.native import Native
from hpcnn.wrappers.native import refuse_layer

Array = NDArray[np.float32]
CUDA_ENVIRONMENT = (
    "on a machine with one make its environment, HPCNN_CONSTRAINTS=env/constraints-modern-cuda.txt bash env/create.sh"
)
"""What brings a framework that computes on GPUs."""
_OWN_SLOT = -1
"""A slot that no program has: they count from 0."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a wrapper can do and what it costs; a strategy that needs more is refused by name."""

    weights_are_views: bool
    """Updates of `weights` reach the framework without a copy."""
    recomputes_forward: bool = False
    """The backward computes the forward again (Theano, tf.function)."""
    net_per_slot: bool = False
    """Each open slot holds a whole net (Caffe)."""
    fuses_loss: bool = False
    """`forward_loss_backward` is one call of the framework, cheaper than `forward` and then `loss_backward`."""
    can_split_backward: bool = False
    """The weights' gradient can be computed after the input's (zero-bubble schedules)."""
    computes: bool = True
    """False: calls only take time, results mean nothing (simulated)."""


@dataclass(frozen=True)
class LossResult:
    """Of one `loss_backward`: sum of row losses, rows classified rightly, and the input's gradient where wanted."""

    loss_sum: float
    correct: int
    input_gradient: Array | None


class KeptGradient(Protocol):
    """A gradient that can stay where a device computes it, for a sum over ranks, and come to the caller's once."""

    def keep(self) -> None:
        """From now on, from zero, what backwards add stays on the device."""

    def buffer(self) -> Any:
        """float32[segment.size] on the device, as mpi4py takes a buffer; whatever computed it has ended."""

    def release(self) -> None:
        """What is in `buffer` is added to `gradient` after all, and whatever backwards add from now on."""


class SegmentModel(abc.ABC):
    """A segment built in one framework. Construction may be slow (imports, compilation); the calls are the hot path."""

    backend: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    kept: KeptGradient | None = None
    """Where the framework has the gradient on a device of its own."""
    on_compile: ClassVar[Callable[[str], None] | None] = None
    """Gets a line now and then while a framework compiles for seconds; set on the class, of who may speak."""

    def __init__(
        self,
        segment: Segment,
        weights: Array,
        gradient: Array,
        *,
        input_gradient: bool | None = None,
        options: Any = None,
    ) -> None:
        """`weights`, `gradient`: float32[segment.size]. `input_gradient`: whether backward returns the input's gradient
        (default: unless the segment is the first, whose input is data). `options`: the backend's, of
        hpcnn.backend_options (default: its defaults).

        BackendError, naming the layer, where the framework cannot express one."""
        for name, vector in (("weights", weights), ("gradient", gradient)):
            if vector.shape != (segment.size,) or vector.dtype != np.float32 or not vector.flags.c_contiguous:
                raise ValueError(
                    f"{name} must be contiguous float32[{segment.size}], not {vector.dtype}{list(vector.shape)}"
                )
        self.segment = segment
        self.weights = weights
        self.gradient = gradient
        self.input_gradient = (not segment.is_first) if input_gradient is None else input_gradient
        self.options = resolve_options(self.backend, {}) if options is None else options

    @classmethod
    def use_device(cls, device: str) -> None:
        """Where segments of this process compute from now on: "cpu", or "cuda", the one GPU that it sees.

        BackendError where the framework cannot, or has begun otherwise."""
        if device != "cpu":
            raise BackendError(
                f"--device {device}: {cls.backend} computes on CPUs alone here: leave --device out, or choose "
                "--backend torch or tensorflow"
            )

    @classmethod  # noqa: B027 (a framework may want nothing)
    def set_process_up(cls, options: Any, threads: int | None) -> None:
        """What the framework takes once a process, before the first segment. `threads`: of the rank (None: its own).

        BackendError where the framework runs already in this process and otherwise."""

    @classmethod
    def complete_native(cls, layer: Native, input_shape: tuple[int, ...]) -> Native:
        """The spec with its tensors and output shape, from the framework; BackendError where it is not its own."""
        raise refuse_layer(cls.backend, layer)

    def check_masks(self, masks: Sequence[Array]) -> None:
        """For a wrapper's forward."""
        dropouts = len(self.segment.dropouts)
        if len(masks) != dropouts:
            raise ValueError(f"the segment has {dropouts} dropouts, but {len(masks)} masks were given")

    @abc.abstractmethod
    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        """Output of the segment in training, kept open as `slot`; of the last segment, logits.

        ValueError where `slot` is open already, which stays as it is, and where masks are not one a dropout
        (`check_masks`)."""

    @abc.abstractmethod
    def backward(self, slot: int, output_gradient: Array) -> Array | None:
        """Close `slot`: add to `gradient`, return the input's gradient where wanted. KeyError where it is not open."""

    @abc.abstractmethod
    def loss_backward(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        """Close `slot` of the last segment: softmax cross-entropy over `divisor`, and its backward. KeyError as above.

        A row counts as classified rightly if its label is the first of its largest logits."""

    def forward_loss_backward(
        self, x: Array, masks: Sequence[Array], labels: NDArray[np.int64], divisor: float
    ) -> LossResult:
        """`forward` and `loss_backward` of the last segment at once; leaves no slot open."""
        self.forward(_OWN_SLOT, x, masks)
        return self.loss_backward(_OWN_SLOT, labels, divisor)

    def check_split(self) -> None:
        """BackendError where this segment's backward comes in one call only, be it for an option of the backend's."""
        if not self.capabilities.can_split_backward:
            raise BackendError(
                f"{self.backend} cannot compute a backward in two halves (the input's gradient first, the weights' "
                "later): choose another --schedule, or --backend torch"
            )

    def backward_input(self, slot: int, output_gradient: Array) -> Array | None:
        """First half of `backward`: the input's gradient where wanted; `gradient` is not touched, `slot` stays open.

        KeyError where `slot` has no forward, or had its first half already; BackendError as of `check_split`."""
        raise self._halves_missing()

    def loss_backward_input(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        """First half of `loss_backward`, as `backward_input` is of `backward`."""
        raise self._halves_missing()

    def backward_weights(self, slot: int) -> None:
        """Second half: add to `gradient`, close `slot`. KeyError where the first half of `slot` has not been."""
        raise self._halves_missing()

    def _halves_missing(self) -> NotImplementedError:
        self.check_split()
        return NotImplementedError(f"{type(self).__name__} declares halves of a backward and has none")

    @abc.abstractmethod
    def infer(self, x: Array) -> Array:
        """Output without dropout and without a slot: activations, or logits from the last segment."""

    def files(self) -> dict[str, str]:
        """Texts that the wrapper generated and a person may want to see (Caffe's prototxt), by file name."""
        return {}

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Settings of the framework that results or speed may depend on, for run.json."""
