"""What the halves of a backward compute in PyTorch, native layers and torch.compile."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from hpcnn.errors import BackendError
from hpcnn.network import Conv2D, Native, ReLU
from hpcnn.network.native import complete_natives
from hpcnn.wrappers.registry import open_backend
from tests.wrappers.probes import DEEP, MIDDLE, build, network, some_rows
from tests.wrappers.test_split import DIVISOR, assert_the_bits_of_the_whole

pytestmark = pytest.mark.needs("torch")


@pytest.mark.parametrize("input_gradient", [False, True])
def test_layers_of_the_frameworks_own_are_split_too(input_gradient: bool) -> None:
    layers = complete_natives(
        (
            Conv2D(filters=4, kernel=3),
            Native(backend="torch", build="torch.nn:GroupNorm", arguments={"num_groups": 2, "num_channels": 4}),
            ReLU(),
            Native(backend="torch", build="tests.wrappers.torch_layers:Residual", arguments={"channels": 4}),
        ),
        (4, 7, 6),
        open_backend("torch").complete,
    )
    segment = network(*layers).whole
    assert_the_bits_of_the_whole("torch", segment, input_gradient=input_gradient)
    assert_the_bits_of_the_whole("torch", segment.architecture.segment(3, 4), input_gradient=input_gradient)


def test_a_group_norm_of_the_image_itself_is_answered() -> None:
    # Of channels-last images torch's own kernel ends the process where only its weights' gradients are asked for.
    norm = Native(backend="torch", build="torch.nn:GroupNorm", arguments={"num_groups": 2, "num_channels": 4})
    segment = network(*complete_natives((norm,), (4, 7, 6), open_backend("torch").complete)).whole
    assert_the_bits_of_the_whole("torch", segment, input_gradient=False)
    assert_the_bits_of_the_whole("torch", segment.architecture.segment(0, 1), input_gradient=False)


@pytest.mark.parametrize("input_gradient", [False, True])
def test_nothing_is_computed_twice(input_gradient: bool) -> None:
    counts = [counted_by_torch(input_gradient, split=split) for split in (False, True)]
    (one,), (first, second) = counts
    # What a convolution's backward computes: the gradients of input, kernel, bias.
    assert one["convolutions"] == [[True] * 3, [input_gradient, True, True]]
    assert first["convolutions"] == [[True, False, False]] * (1 + input_gradient)
    assert second["convolutions"] == [[False, True, True]] * 2
    assert first["products"] + second["products"] == one["products"]
    assert first["others"] == one["others"]
    assert second["others"] == 0


def counted_by_torch(input_gradient: bool, *, split: bool) -> list[dict[str, Any]]:
    """What a backward, or each half of one, computes."""
    base: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Counter(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.found: dict[str, Any] = {"convolutions": [], "products": 0, "others": 0}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.overloadpacket.__name__
            if name == "convolution_backward":
                self.found["convolutions"].append(list(args[-1]))
            self.found["products"] += name == "mm"
            self.found["others"] += name in ("tanh_backward", "threshold_backward", "avg_pool2d_backward", "mul") or (
                name == "max_pool2d_with_indices_backward"
            )
            return func(*args, **(kwargs or {}))

    model, rows = build("torch", DEEP.whole, input_gradient=input_gradient), some_rows(DEEP.whole, 3)
    model.forward(0, rows.x, rows.masks)
    found = []
    calls = (
        (lambda: model.loss_backward_input(0, rows.labels, DIVISOR), lambda: model.backward_weights(0))
        if split
        else (lambda: model.loss_backward(0, rows.labels, DIVISOR),)
    )
    for call in calls:
        with Counter() as counter:
            call()
        found.append(counter.found)
    return found


def test_torch_refuses_where_it_compiles() -> None:
    compiled = open_backend("torch", {"compile": True})
    model = compiled(MIDDLE, np.zeros(MIDDLE.size, np.float32), np.zeros(MIDDLE.size, np.float32))
    refusal = r"compile = true .*leave .* out, or choose another --schedule"
    with pytest.raises(BackendError, match=refusal):
        model.check_split()
    with pytest.raises(BackendError, match=refusal):
        model.backward_input(0, some_rows(MIDDLE, 1).output_gradient)
