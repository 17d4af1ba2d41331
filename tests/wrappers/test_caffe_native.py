"""Native layers of Caffe by their types, and those that would end the process or mix rows: refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hpcnn.errors import BackendError
from hpcnn.network import Architecture, Conv2D, MaxPool2D, Native, ReLU
from hpcnn.network.native import NativeTensor, complete_natives
from hpcnn.network.network_file import get_network
from hpcnn.wrappers.registry import open_backend
from tests.support.mpi import REPOSITORY
from tests.wrappers.probes import NOISE, assert_near, build, close, expect, network, some_rows, some_weights

pytestmark = pytest.mark.needs("caffe")
SHAPE = (3, 8, 6)


def native(build: str, arguments: Mapping[str, Any], **settings: Any) -> Native:
    return Native(name="own", backend="caffe", build=build, arguments=dict(arguments), **settings)


def completed(build: str, arguments: Mapping[str, Any]) -> Native:
    return open_backend("caffe").complete(native(build, arguments), SHAPE)


def tensors(layer: Native) -> dict[str, tuple[tuple[int, ...], str | None, float]]:
    return {tensor.name: (tensor.shape, tensor.initialiser, tensor.constant) for tensor in layer.known_parameters()}


def test_a_type_is_asked_for_its_blobs_by_number() -> None:
    layer = completed("PReLU", {"prelu_param": {"channel_shared": False}})
    assert tensors(layer) == {"blob0": ((3,), None, 0.25)}
    assert layer.output_shape == SHAPE
    layer = completed("InnerProduct", {"num_output": 5, "weight_filler": {"type": "gaussian", "std": 0.1}})
    assert tensors(layer) == {"blob0": ((5, 144), "glorot_uniform", 0.0), "blob1": ((5,), None, 0.0)}
    assert layer.output_shape == (5,)


def test_parameters_stand_as_in_a_prototxt_file_or_bare_as_in_caffes_own_python() -> None:
    bare = completed("Pooling", {"kernel_size": 2, "stride": 2, "pool": 1})
    assert bare.output_shape == (3, 4, 3)
    full = completed("Pooling", {"pooling_param": {"kernel_size": 2, "stride": 2, "pool": 1}})
    assert full.output_shape == bare.output_shape


def test_it_trains_beside_layers_of_ours() -> None:
    # A PReLU of slope 0 in every channel is a ReLU; its own gradient is that of what is below 0.
    def whole(layer: Any) -> Architecture:
        layers = [Conv2D(filters=4, kernel=3), layer, MaxPool2D()]
        return network(*complete_natives(layers, SHAPE, open_backend("caffe").complete), shape=SHAPE)

    held, own = whole(native("PReLU", {"prelu_param": {}})), whole(ReLU())
    weights, rows = some_weights(own.whole), some_rows(own.whole, 5)
    place = held.parameters[2].span
    gradient = np.zeros(held.size, np.float32)
    model = open_backend("caffe")(held.whole, np.insert(weights, place.start, np.zeros(4, np.float32)), gradient,
                                  input_gradient=True)  # fmt: skip
    expected = expect(build("caffe", own.whole, weights, input_gradient=True), rows)
    for slot in (1, 0):
        assert_near(model.forward(slot, rows.x), expected.output)
    for slot in (1, 0):
        close(model, slot, rows, expected)
    found = np.delete(gradient, place)
    for parameter in own.parameters:
        assert_near(parameter.view(found), 2 * parameter.view(expected.gradient), NOISE)
    assert np.count_nonzero(gradient[place]) > 1  # a channel may be above 0 everywhere


@pytest.mark.parametrize(
    ("build", "arguments", "words"),
    [
        ("PRelu", {}, r"'PRelu' is not known: .*; or a layer type of Caffe's own, did you mean PReLU\?$"),
        ("PReLU", {"no_such": 1}, r"PReLU cannot be made with {'no_such': 1}: AttributeError"),
        ("PReLU", {"prelu_param": {"channel_shared": "x"}}, "PReLU cannot be made with .*: TypeError"),
        # what follows would end the process
        ("Convolution", {"num_output": 4}, r"cannot be made .* rows of \(3, 8, 6\): Check failed: .*kernel_size"),
        ("Convolution", {"num_output": 4, "kernel_size": 9}, r"for rows of \(3, 8, 6\): "),
        ("Crop", {}, r"for rows of \(3, 8, 6\): Check failed: "),
        ("Input", {}, r"for rows of \(3, 8, 6\): "),
        ("Reshape", {"shape": {"dim": [0, 7]}}, r"for rows of \(3, 8, 6\): Check failed: "),
        # what follows would not
        ("BatchNorm", {}, r"BatchNorm keeps blob0, blob1, blob2 beside its weights, which ranks do not share"),
        ("Dropout", {}, "Dropout gives another output each time"),
        ("Softmax", {"axis": 0}, "Softmax mixes rows"),
        ("Reduction", {}, r"Reduction turns 3 rows into \(\)"),
        ("Pad", {"pad_u": 1}, "Pad goes backward wrongly, or not at all: "),
        ("HardSwish", {}, "HardSwish goes backward wrongly, or not at all: "),
        ("tests.wrappers.caffe_layers:gives_a_number", {}, "gives int: a function has to give a LayerParameter"),
        ("tests.wrappers.caffe_layers:leaves", {}, "cannot be made with {}: SystemExit: 3$"),
    ],
)
def test_what_cannot_be_is_refused_by_name(build: str, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(BackendError, match=f"native 'own': .*{words}") as error:
        completed(build, arguments)
    assert "\n" not in str(error.value)


def test_a_spec_that_comes_complete_is_held_against_caffe_too() -> None:
    layer = native("PReLU", {}, parameters=[NativeTensor("blob0", (4,))], output_shape=SHAPE)
    architecture = network(layer, shape=SHAPE)
    with pytest.raises(BackendError, match=r"PReLU holds blob0 \(3,\), the spec says blob0 \(4,\)"):
        build("caffe", architecture.whole)


def test_the_example_is_built_and_shows_in_the_prototxt() -> None:
    complete = open_backend("caffe").complete
    architecture = get_network(str(REPOSITORY / "jobs/native/caffe.toml"), (1, 28, 28), 10, complete)
    text = build("caffe", architecture.whole).files()["train.prototxt"]
    assert 'type: "PReLU"' in text
    assert "channel_shared: false" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("include", {"phase": 0}), ("exclude", {"phase": 1}), ("phase", 0), ("loss_weight", 1.0),
        ("propagate_down", [False]), ("param", [{"lr_mult": 0.0}]),
    ],
)  # fmt: skip
def test_fields_by_which_caffe_chooses_what_it_trains_are_refused(field: str, value: object) -> None:
    layer = Native(name="own", backend="caffe", build="PReLU", arguments={field: value})
    with pytest.raises(BackendError, match=rf"native 'own': PReLU has {field}, by which Caffe chooses what it trains"):
        open_backend("caffe").complete(layer, (3, 4, 5))


def test_an_output_without_axes_is_refused() -> None:
    layer = Native(name="own", backend="caffe", build="Reduction", arguments={"reduction_param": {"axis": 1}})
    with pytest.raises(BackendError, match="native 'own': Reduction gives a number a row"):
        open_backend("caffe").complete(layer, (3, 4, 5))
