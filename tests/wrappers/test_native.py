"""Native layers: a framework's own layer behaves in a segment as one of ours does.

A layer that both have, given once as ours and once as the framework's, must answer alike: so the whole machinery (its
tensors in the flat vectors, slots, accumulation, the input's gradient) is held to the float64 reference.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
import pytest

from hpcnn.errors import BackendError
from hpcnn.network import Architecture, Conv2D, Layer, MaxPool2D, Native, Tanh
from hpcnn.network.native import complete_natives
from hpcnn.wrappers.native import set_custom_backend
from hpcnn.wrappers.registry import BACKENDS, open_backend
from tests.wrappers.backends import EVERY_BACKEND, KERAS_BACKEND
from tests.wrappers.probes import NOISE, assert_near, close, expect, network, some_rows, some_weights

pytestmark = EVERY_BACKEND
SHAPE = (3, 8, 6)
CONVOLUTION = {
    "torch": ("torch.nn:Conv2d", {"in_channels": 3, "out_channels": 4, "kernel_size": 3}),
    "tensorflow": ("tests.wrappers.tensorflow_layers:Convolution", {"channels": 3, "filters": 4, "size": 3}),
    "keras": ("keras.layers:Conv2D", {"filters": 4, "kernel_size": 3}),
    "caffe": ("tests.wrappers.caffe_layers:convolution", {"filters": 4, "size": 3}),
    "lasagne": ("tests.wrappers.lasagne_layers:Convolution", {"filters": 4, "size": 3}),
}
TANH = {
    "torch": "torch:tanh",
    "tensorflow": "tensorflow:tanh",
    "keras": "keras.ops:tanh",
    "caffe": "TanH",
    "lasagne": "theano.tensor:tanh",
}
KERNEL_TO_OURS = {"tensorflow": (3, 2, 0, 1), "keras": (3, 2, 0, 1)}
TURNED: set[str] = set()
"""Whose kernels are turned round: a convolution, where all others correlate."""
if KERAS_BACKEND == "theano":  # Keras 2, whose functions have other names
    TANH["keras"] = "keras.backend:tanh"
    TURNED.add("keras")


def ours() -> Architecture:
    return network(Conv2D(filters=4, kernel=3, name="own"), Tanh(), MaxPool2D(size=2), shape=SHAPE)


def native(backend: str, **settings: Any) -> Native:
    build, arguments = CONVOLUTION[backend]
    return Native(**{"name": "own", "backend": backend, "build": build, "arguments": arguments, **settings})


def with_natives(backend: str) -> Architecture:
    layers: list[Layer] = list(ours().layers)
    layers[:2] = [native(backend), Native(backend=backend, build=TANH[backend])]
    completed = complete_natives(layers, SHAPE, open_backend(backend).complete)
    return Architecture("probe", SHAPE, tuple(completed))


def moved(backend: str, vector: Any, *, back: bool) -> Any:
    """A flat vector between our layout of the convolution's kernel and the framework's."""
    theirs = {len(one.shape): one for one in with_natives(backend).parameters if one.layer == "own"}
    own = {len(one.shape): one for one in ours().parameters if one.layer == "own"}
    result = np.array(vector)
    for axes in (KERNEL_TO_OURS.get(backend, (0, 1, 2, 3)), (0,)):
        left, right = own[len(axes)], theirs[len(axes)]
        turned = np.s_[::-1, ::-1] if len(axes) == 4 and backend in TURNED else ...
        if back:
            left.view(result)[...] = right.view(vector)[turned].transpose(axes)
        else:
            right.view(result)[turned] = left.view(vector).transpose(np.argsort(axes))
    return result


def test_the_framework_is_asked_for_tensors_and_shapes(backend: str) -> None:
    held = with_natives(backend)
    first, second = held.layers[:2]
    assert isinstance(first, Native)
    assert isinstance(second, Native)
    assert first.output_shape == (4, 6, 4)
    assert second.known_parameters() == ()
    kernel, bias = sorted(first.known_parameters(), key=lambda tensor: -len(tensor.shape))
    assert sorted(kernel.shape) == [3, 3, 3, 4]
    assert kernel.initialiser == "glorot_uniform"
    assert bias.shape == (4,)
    assert held.size == ours().size


def test_answers_are_those_of_the_same_layers_of_ours(backend: str) -> None:
    held, own = with_natives(backend), ours()
    weights = some_weights(own.whole)
    gradient = np.zeros(held.size, np.float32)
    model = open_backend(backend)(held.whole, moved(backend, weights, back=False), gradient, input_gradient=True)
    reference = open_backend(backend)(own.whole, weights, np.zeros(own.size, np.float32), input_gradient=True)
    total = np.zeros(own.size)
    opened = []
    for slot, rows in enumerate((some_rows(own.whole, 5), some_rows(own.whole, 3, seed=1))):
        expected = expect(reference, rows)
        assert_near(model.forward(slot, rows.x), expected.output)
        opened.append((slot, rows, expected))
        total += expected.gradient
    for slot, rows, expected in reversed(opened):
        close(model, slot, rows, expected)
    found = moved(backend, gradient, back=True)
    for parameter in own.parameters:
        assert_near(np.ascontiguousarray(parameter.view(found)), parameter.view(total), NOISE)


def test_weights_updated_in_place_are_seen(backend: str) -> None:
    held, own = with_natives(backend), ours()
    weights = moved(backend, some_weights(own.whole), back=False)
    model = open_backend(backend)(held.whole, weights, np.zeros(held.size, np.float32))
    rows = some_rows(own.whole, 3)
    before = model.infer(rows.x)
    weights *= 0.5
    after = model.infer(rows.x)
    fresh = open_backend(backend)(held.whole, weights.copy(), np.zeros(held.size, np.float32)).infer(rows.x)
    assert np.array_equal(after, fresh)
    assert not np.array_equal(after, before)


def test_a_layer_alone_in_a_segment(backend: str) -> None:
    held = with_natives(backend)
    for place in (0, 1):
        segment = held.segment(place, place + 1)
        gradient = np.zeros(segment.size, np.float32)
        model = open_backend(backend)(segment, some_weights(segment), gradient, input_gradient=True)
        rows = some_rows(segment, 3)
        assert model.forward(0, rows.x).shape == (3, *segment.output_shape)
        returned = model.backward(0, rows.output_gradient)
        assert returned is not None
        assert returned.shape == rows.x.shape
        assert not segment.size or gradient.any()


def test_a_custom_name_is_built_by_its_function(backend: str) -> None:
    made = open_backend(backend).complete(native(backend), SHAPE)
    build, arguments = CONVOLUTION[backend]
    module, _, attribute = build.partition(":")

    def make(*incoming: Any, wider: int) -> Any:  # Lasagne gives the layer before
        filters = next(key for key, value in arguments.items() if value == 4)
        return getattr(importlib.import_module(module), attribute)(*incoming, **{**arguments, filters: wider})

    set_custom_backend(backend, "wide", make)
    wide = native(backend, build="wide", arguments={"wider": 6})
    completed = open_backend(backend).complete(wide, SHAPE)
    assert completed.output_shape == (6, 6, 4)
    assert made.output_shape == (4, 6, 4)
    with pytest.raises(BackendError, match="':' is for module:attribute"):
        set_custom_backend(backend, "a:b", make)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"build": "nowhere"}, "native 'own': 'nowhere' is not known: give module:attribute, or a name"),
        ({"build": "no_such_module:Layer"}, "native 'own': no no_such_module:Layer"),
        ({"build": "json:Layer"}, "native 'own': no json:Layer"),
        ({"arguments": {"no_such": 1}}, "native 'own': .* cannot be made with"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(backend: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BackendError, match=words):
        open_backend(backend).complete(native(backend, **settings), SHAPE)


def test_a_spec_that_says_something_else_than_the_framework_is_refused(backend: str) -> None:
    completed = open_backend(backend).complete(native(backend), SHAPE)
    wrong = dataclasses.replace(completed, parameters=[["kernel", [2]]])
    architecture = network(wrong, shape=SHAPE)
    with pytest.raises(BackendError, match=r"native 'own': .* holds .*, the spec says kernel \(2,\)"):
        open_backend(backend)(architecture.whole, np.zeros(architecture.size, np.float32),
                              np.zeros(architecture.size, np.float32))  # fmt: skip
    other = dataclasses.replace(completed, output_shape=(4, 4, 6))
    architecture = network(other, shape=SHAPE)
    with pytest.raises(BackendError, match=r"gives \(4, 6, 4\), the spec says \(4, 4, 6\): mend output_shape"):
        open_backend(backend)(architecture.whole, np.zeros(architecture.size, np.float32),
                              np.zeros(architecture.size, np.float32))  # fmt: skip


def test_another_frameworks_layer_is_refused_with_the_backend_that_can(backend: str) -> None:
    other = next(name for name in BACKENDS if name != backend)
    with pytest.raises(BackendError, match=rf"{backend} cannot build native 'own': .* so --backend {other} can"):
        open_backend(backend).complete(native(other), SHAPE)


STATE = {
    "torch": ("torch.nn:BatchNorm2d", {"num_features": 3}),
    "tensorflow": ("tests.wrappers.tensorflow_layers:Counter", {}),
    "keras": ("keras.layers:BatchNormalization", {}),
    "caffe": ("BatchNorm", {}),
    "lasagne": ("tests.wrappers.lasagne_layers:Shifted", {}),
}


def test_state_beside_the_weights_is_refused(backend: str) -> None:
    build, arguments = STATE[backend]
    with pytest.raises(BackendError, match=r"native 'own': .* keeps .* beside its weights, which ranks do not share"):
        open_backend(backend).complete(native(backend, build=build, arguments=arguments), SHAPE)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("mixes_rows", "mixes rows: an output that depends on the other rows of a batch"),
        ("counts_its_calls", "gives another output each time"),
        ("fails", r"cannot take rows of \(3, 8, 6\): ValueError: first line second line$"),
        ("leaves", r"cannot take rows of \(3, 8, 6\): SystemExit: 3$"),
        ("gives_two", "gives tuple, not rows: name a class, or a function of the rows"),
        ("drops_rows", "turns 3 rows into"),
    ],
)
def test_what_is_no_function_of_each_row_is_refused_by_name(backend: str, function: str, words: str) -> None:
    if backend == "caffe":
        return  # no function of rows can be a layer there; its own layers are in test_caffe_native.py
    odd = native(backend, build=f"tests.wrappers.odd_layers:{function}", arguments={})
    with pytest.raises(BackendError, match=f"native 'own': tests.wrappers.odd_layers:{function} {words}"):
        open_backend(backend).complete(odd, SHAPE)


RANDOM = {
    "torch": "torch.nn.functional:dropout",
    "tensorflow": "tensorflow.nn:dropout",
    "keras": "keras.random:dropout",
    "caffe": "Dropout",
    "lasagne": "lasagne.layers:DropoutLayer",
}


def test_randomness_that_is_not_the_suites_own_is_refused(backend: str) -> None:
    build, arguments = RANDOM[backend], {"rate": 0.5} if backend in ("tensorflow", "keras") else {}
    if backend in TURNED:
        build, arguments = "keras.backend:dropout", {"level": 0.5}
    layer = native(backend, build=build, arguments=arguments)
    with pytest.raises(BackendError, match=r"native 'own': .* gives another output each time"):
        open_backend(backend).complete(layer, SHAPE)


def test_a_misspelt_name_is_answered_with_the_nearest(backend: str) -> None:
    build, _ = CONVOLUTION[backend]
    with pytest.raises(BackendError, match=rf"native 'own': no {build}s: .*; did you mean {build.partition(':')[2]}\?"):
        open_backend(backend).complete(native(backend, build=f"{build}s"), SHAPE)
