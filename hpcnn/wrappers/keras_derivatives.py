"""What a framework under Keras has to do: go forward, keep what a backward needs, and go backward.

Keras itself has no derivatives. A module a framework, keras_on_NAME, has a class `NameDerivatives`, which gets a
function `apply(tensors, x, masks)` made of Keras' layers: the output of the segment for its parameters in their
canonical shapes; masks are None in inference. What a forward keeps is the caller's to hold, so any number can be open.
"""

from __future__ import annotations

import abc
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from hpcnn.network.layers import MaxPool2D
from hpcnn.wrappers.contract import Array, SegmentModel

Apply = Callable[[Sequence[Any], Any, Sequence[Any] | None], Any]
LossAndSlope = tuple[Any, Any, Any]


class Derivatives(abc.ABC):
    """Those of one segment."""

    data_format: ClassVar[str] = "channels_last"
    """The order of axes in which the framework is fastest, as Keras names it."""

    def __init__(self, model: SegmentModel, apply: Apply, ops: Any) -> None:
        self.model = model
        self.apply = apply
        self._loss = self.compiled_loss(ops, *model.segment.output_shape) if model.segment.is_last else None

    @staticmethod
    @abc.abstractmethod
    def set_process_up(options: Any, threads: int | None) -> None:
        """Before Keras is imported. BackendError where the framework runs already and otherwise."""

    @staticmethod
    def max_pool(layer: MaxPool2D, options: Any) -> Callable[[Any], Any] | None:
        """What stands in for Keras' own where that is slow, or loses nan."""
        return None

    activations: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """What stands in for Keras' own, by name, where that loses nan."""

    @abc.abstractmethod
    def forward(self, x: Array, masks: Sequence[Array]) -> tuple[Any, Any]:
        """The output as a tensor, and what its backward needs."""

    @abc.abstractmethod
    def backward(self, kept: Any, slope: Any) -> Array | None:
        """Add to the model's gradient; return the input's where wanted. `slope`: the output's, array or tensor."""

    @staticmethod
    @abc.abstractmethod
    def compiled_loss(ops: Any, classes: int) -> Callable[..., LossAndSlope]:
        """`loss_and_slope`, compiled where the framework compiles, and once."""

    @abc.abstractmethod
    def loss(self, logits: Any, labels: Any, divisor: float) -> LossAndSlope:
        """Of `loss_and_slope`."""

    @abc.abstractmethod
    def infer(self, x: Array) -> Array:
        """The output without dropout."""

    @staticmethod
    @abc.abstractmethod
    def array(tensor: Any) -> Array:
        """As the contract wants it."""

    @staticmethod
    @abc.abstractmethod
    def describe() -> dict[str, Any]:
        """What of the framework results or speed may depend on."""


def loss_and_slope(ops: Any, classes: int, logits: Any, labels: Any, divisor: Any) -> LossAndSlope:
    """Sum of row losses, the logits' gradient over `divisor`, rows whose first largest logit is their label's.

    `ops`: keras.ops.
    """
    logarithms = ops.log_softmax(logits)
    wanted = ops.one_hot(labels, classes, dtype="float32")
    right = ops.cast(ops.argmax(logits, -1), labels.dtype) == labels
    return -ops.sum(wanted * logarithms), (ops.exp(logarithms) - wanted) / divisor, ops.sum(ops.cast(right, "int32"))


def derivatives_of(keras_backend: str) -> type[Derivatives]:
    """The class; imports the framework."""
    module = importlib.import_module(f"hpcnn.wrappers.keras_on_{keras_backend}")
    found: type[Derivatives] = getattr(module, f"{keras_backend.capitalize()}Derivatives")
    return found
