"""The reference is itself held against definitions: nested loops, finite differences, and torch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcnn.network import (
    Architecture,
    AveragePool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool2D,
    ReLU,
    Softmax,
    Tanh,
    get_network,
    initial_weights,
    segment_masks,
)
from tests.parity.numpy_reference import Convolution, Reference

Array = Any
HEAD = (Flatten(), Dense(units=3, bias=0.2), Softmax())


def network(*layers: Layer, shape: tuple[int, int, int] = (4, 7, 6)) -> Architecture:
    return Architecture("probe", shape, (*layers, *HEAD))


NETWORKS = {
    "convolution, strided and grouped, even kernel": network(
        Conv2D(filters=6, kernel=(3, 2), stride=(2, 1), padding="same", groups=2, bias=0.1)
    ),
    "convolution, one-sided padding": network(Conv2D(filters=2, kernel=2, stride=2, padding=((1, 0), (0, 2)))),
    "convolution, rows left over": network(Conv2D(filters=2, kernel=(2, 3), stride=(4, 2))),
    "max pool, overlapping": network(MaxPool2D(size=(3, 2), stride=(2, 1))),
    "average pool, rows left over": network(AveragePool2D(size=(2, 3), stride=(3, 2))),
    "relu": network(ReLU()),
    "tanh": network(Tanh()),
    "dropout": network(Dropout(rate=0.4)),
    "all together": network(
        Conv2D(filters=6, kernel=3, padding="same", groups=2),
        Tanh(),
        MaxPool2D(size=2, stride=1),
        Dropout(rate=0.3),
        Conv2D(filters=4, kernel=2, stride=2, padding=1, bias=0.1),
        ReLU(),
        AveragePool2D(size=2),
        Flatten(),
        Dense(units=5),
        Tanh(),
        Dropout(rate=0.2),
        Dense(units=4),
        shape=(2, 6, 5),
    ),
}
BY_NAME = pytest.mark.parametrize("architecture", NETWORKS.values(), ids=NETWORKS.keys())


def problem(architecture: Architecture, rows: int = 3) -> tuple[Array, Array, Array, tuple[Array, ...]]:
    """Weights, inputs, labels and masks; the inputs are from NumPy's generator and any will do."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(rows, *architecture.input_shape))
    labels = np.arange(rows) % architecture.num_classes
    weights = initial_weights(architecture, 0).astype(np.float64)
    return weights, x, labels, segment_masks(architecture.whole, 0, 0, np.arange(rows))


def central_differences(function: Any, point: Array, h: float) -> Array:
    slopes = []
    for index in range(point.size):
        step = np.zeros(point.size)
        step[index] = h
        step = step.reshape(point.shape)
        slopes.append((function(point + step) - function(point - step)) / (2 * h))
    return np.reshape(slopes, point.shape)


@BY_NAME
def test_gradients_equal_finite_differences(architecture: Architecture) -> None:
    weights, x, labels, masks = problem(architecture)
    divisor, h = 7.0, 1e-5
    loss, gradient, dx = Reference(architecture, weights).loss_and_gradient(x, labels, masks, divisor)

    def divided_loss(some_weights: Array, some_x: Array) -> float:
        return Reference(architecture, some_weights).loss_and_gradient(some_x, labels, masks, divisor)[0] / divisor

    # Rounding: a loss below 1 through sums of at most a few hundred terms is right to 1e-15, a difference quotient so
    # to 1e-15 / h = 1e-10. Truncation: h^2 / 6 times the third derivative, below 50 for these networks, is 8e-10.
    assert loss / divisor < 1
    assert np.abs(central_differences(lambda w: divided_loss(w, x), weights, h) - gradient).max() < 1e-9
    assert np.abs(central_differences(lambda v: divided_loss(weights, v), x, h) - dx).max() < 1e-9
    assert np.abs(gradient).max() > 1e-2
    assert np.abs(dx).max() > 1e-3


@BY_NAME
def test_shapes_and_layout_are_those_of_the_package(architecture: Architecture) -> None:
    reference = Reference(architecture, np.arange(architecture.size))
    assert tuple(operation.output_shape for operation in reference.operations) == architecture.shapes[:-1]
    value = np.zeros((2, *architecture.input_shape))
    for operation in reference.operations:
        value = operation.forward(value)
        assert value.shape == (2, *operation.output_shape)
    kernels = {p.name: p.view(np.arange(architecture.size)) for p in architecture.parameters}
    for layer, operation in zip(architecture.layers, reference.operations, strict=False):
        if hasattr(operation, "kernel"):
            assert np.array_equal(operation.kernel, kernels[f"{layer.name}/kernel"])
            assert np.array_equal(operation.bias, kernels[f"{layer.name}/bias"])


@settings(max_examples=30)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from(["same", "valid", 1, ((2, 0), (1, 3))]),
    st.integers(1, 2),
)
def test_convolution_is_its_definition(
    kernel: tuple[int, int], stride: tuple[int, int], padding: Any, groups: int
) -> None:
    layer = Conv2D(filters=2 * groups, kernel=kernel, stride=stride, padding=padding, groups=groups)
    operation = Convolution(layer, (2 * groups, 5, 4))
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1, 2 * groups, 5, 4))
    operation.take(generator.normal(size=1000), 0)
    y = operation.forward(x)
    (top, _), (left, _) = operation.padding
    for o, p, q in np.ndindex(*y.shape[1:]):
        total = operation.bias[o]
        for c, i, j in np.ndindex(*operation.kernel.shape[1:]):
            row, column = p * stride[0] + i - top, q * stride[1] + j - left
            if 0 <= row < 5 and 0 <= column < 4:
                total += operation.kernel[o, c, i, j] * x[0, o // 2 * 2 + c, row, column]
        # Two sums of at most 19 terms of size below 20 in another order: 19 x 20 x 2**-53 each.
        assert abs(y[0, o, p, q] - total) < 1e-13


def input_gradient(layer: Layer, x: list[list[float]], slopes: list[list[float]]) -> list[list[float]]:
    """The gradient that reaches a one-channel image through one layer, for the given output slopes."""
    architecture = network(layer, shape=(1, len(x), len(x[0])))
    operation = Reference(architecture, np.zeros(architecture.size)).operations[0]
    operation.forward(np.array([[x]], dtype=np.float64))
    gradient: list[list[float]] = operation.backward(np.array([[slopes]], dtype=np.float64))[0][0, 0].tolist()
    return gradient


def test_a_max_pool_gradient_goes_to_the_first_maximum_in_row_major_order() -> None:
    assert input_gradient(MaxPool2D(), [[1, 2], [2, 2]], [[5]]) == [[0, 5], [0, 0]]
    assert input_gradient(MaxPool2D(), [[0, 0], [0, 0]], [[5]]) == [[5, 0], [0, 0]]
    assert input_gradient(MaxPool2D(size=(1, 2), stride=1), [[1, 1, 1]], [[2, 3]]) == [[2, 3, 0]]


def test_the_slope_of_relu_at_0_is_0() -> None:
    assert input_gradient(ReLU(), [[-1, 0, -0.0, 2]], [[1, 1, 1, 1]]) == [[0, 0, 0, 1]]


def test_losses_and_gradients_are_sums_over_rows() -> None:
    architecture = NETWORKS["all together"]
    weights, x, labels, masks = problem(architecture, rows=5)
    reference = Reference(architecture, weights)
    loss, gradient, dx = reference.loss_and_gradient(x, labels, masks, 5)
    parts = [
        reference.loss_and_gradient(x[rows], labels[rows], [mask[rows] for mask in masks], 5)
        for rows in (slice(0, 2), slice(2, 5))
    ]
    assert loss == pytest.approx(sum(part[0] for part in parts), rel=1e-14)
    # Sums of at most 5 x 30 terms of size below 1 in another order: 150 x 2**-53 = 2e-14.
    assert np.abs(gradient - sum(part[1] for part in parts)).max() < 2e-14
    assert np.abs(dx - np.concatenate([part[2] for part in parts])).max() < 2e-14


def test_a_loss_of_huge_logits_is_finite() -> None:
    architecture = network(shape=(1, 1, 1))
    loss, gradient, _ = Reference(architecture, [1e4, -1e4, 0, 0, 0, 0]).loss_and_gradient([[[[1.0]]]], [1])
    assert loss == 2e4
    assert gradient.tolist() == [1, -1, 0, 1, -1, 0]


def test_evaluation_needs_no_masks_and_training_does() -> None:
    architecture = NETWORKS["dropout"]
    weights, x, labels, masks = problem(architecture)
    reference = Reference(architecture, weights)
    ones = [np.ones_like(mask) for mask in masks]
    assert np.array_equal(reference.logits(x), reference.logits(x, ones))
    assert not np.array_equal(reference.logits(x), reference.logits(x, masks))
    with pytest.raises(ValueError, match="one mask for each dropout"):
        reference.loss_and_gradient(x, labels)
    with pytest.raises(ValueError, match="the network has 507 weights, 506 were given"):
        Reference(architecture, weights[1:])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["cnn2d_3layer_fullconnected_3layer", "cnn2d_2layer_fullconnected_2layer"])
def test_torch_in_float64_gives_the_same_on_the_networks_of_the_zoo(name: str) -> None:
    import torch

    architecture = get_network(name, (1, 12, 12), 10)
    weights, x, labels, masks = problem(architecture, rows=4)
    loss, gradient, dx = Reference(architecture, weights).loss_and_gradient(x, labels, masks, 4)

    tensor, image = (torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in (weights, x))
    tensors = [tensor[p.span].reshape(p.shape) for p in architecture.parameters]
    value, remaining = image, [torch.tensor(mask, dtype=torch.float64) for mask in masks]
    for layer in architecture.layers[:-1]:
        if isinstance(layer, Conv2D):
            value = torch.conv2d(value, tensors.pop(0), tensors.pop(0), padding=layer.kernel[0] // 2)
        elif isinstance(layer, MaxPool2D):
            value = torch.max_pool2d(value, 2)
        elif isinstance(layer, Dense):
            value = torch.nn.functional.linear(value, tensors.pop(0), tensors.pop(0))
        elif isinstance(layer, Dropout):
            value = value * remaining.pop(0)
        else:
            value = value.relu() if isinstance(layer, ReLU) else value.flatten(1)
    total = torch.nn.functional.cross_entropy(value, torch.tensor(labels), reduction="sum")
    (total / 4).backward()

    # Relative float64 noise of dot products over at most 1,200 terms, through six layers: 1,200 x 6 x 2**-53 < 1e-12.
    assert loss == pytest.approx(total.item(), rel=1e-12)
    for ours, theirs in ((gradient, tensor.grad.numpy()), (dx, image.grad.numpy())):
        assert np.linalg.norm(ours - theirs) < 1e-12 * np.linalg.norm(theirs)
