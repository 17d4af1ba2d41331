"""The torch wrapper moves ReLUs behind pools and does them in place: the bits are those of the layers as written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hpcnn.data.dataset import Dataset, aligned_empty, load_dataset
from hpcnn.network.architecture import Architecture
from hpcnn.network.initial import initial_weights
from hpcnn.network.layers import Conv2D, Dense, Flatten, Layer, MaxPool2D, ReLU, Softmax, Tanh
from hpcnn.network.masks import segment_masks
from hpcnn.network.zoo import networks
from tests.support.mpi import REPOSITORY

pytestmark = pytest.mark.needs("torch")

ROWS = np.arange(37)
INPUT = (1, 28, 28)

# A ReLU as the first layer must leave the caller's array alone, a pool behind it too.
RELUS_FIRST: tuple[Layer, ...] = (
    ReLU(), MaxPool2D(size=2), ReLU(), Conv2D(filters=3, kernel=3), ReLU(), ReLU(), MaxPool2D(size=3, stride=2),
    MaxPool2D(size=2), Tanh(), ReLU(), Flatten(), Dense(units=10), Softmax(),
)  # fmt: skip
# But for the largest, whose layers come in the order of another one's and take seconds.
ARCHITECTURES = [
    *(built for network in networks() if (built := network.build(INPUT, 10)).size < 10_000_000),
    Architecture("relus_first", INPUT, RELUS_FIRST),
]


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset(REPOSITORY / "data" / "test.csv")


@pytest.mark.parametrize("bias", [0.0, 0.01])
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda architecture: architecture.name)
def test_cheap_relus_change_no_bit_of_logits_gradient_or_input(
    digits: Dataset, architecture: Architecture, bias: float
) -> None:
    from hpcnn.wrappers.torch_wrapper import TorchSegment

    class AsWritten(TorchSegment):
        def _make_relus_cheap(self, layers: Sequence[Layer]) -> None:
            pass

    cheap = after_a_step(TorchSegment, digits, architecture, bias)
    written = after_a_step(AsWritten, digits, architecture, bias)
    for name, left in cheap.items():
        np.testing.assert_array_equal(left, written[name], err_msg=name)


def after_a_step(segment_class: type[Any], digits: Dataset, architecture: Architecture, bias: float) -> Any:
    """What a step on real digits leaves. Zeros in their background tie in pools, and zero biases keep the ties."""
    weights, gradient = initial_weights(architecture, 1), np.zeros(architecture.size, np.float32)
    for parameter in architecture.parameters:
        if parameter.role == "bias":
            parameter.view(weights)[...] = bias
    x = aligned_empty((len(ROWS), *INPUT))
    x[...] = digits.features[ROWS] / np.float32(255) - np.float32(0.1)
    model = segment_class(architecture.whole, weights, gradient, input_gradient=True)
    inferred = model.infer(x).copy()
    logits = model.forward(0, x, segment_masks(architecture.whole, 1, 1, ROWS)).copy()
    slope = model.loss_backward(0, digits.take_labels(ROWS), len(ROWS)).input_gradient
    return {"inferred": inferred, "logits": logits, "gradient": gradient, "input gradient": slope, "input": x}
