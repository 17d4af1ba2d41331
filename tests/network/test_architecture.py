from __future__ import annotations

import json
import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import NetworkError
from hpcnn.network import (
    Architecture,
    AveragePool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    MaxPool2D,
    ReLU,
    Softmax,
    Tanh,
)

SMALL = Architecture(
    "small",
    (2, 9, 8),
    (
        Conv2D(filters=6, kernel=(3, 2), stride=2, padding="same", groups=2, bias=0.1),
        ReLU(),
        Dropout(rate=0.1),
        MaxPool2D(size=2),
        Conv2D(filters=4, kernel=1, name="mix"),
        Tanh(),
        AveragePool2D(size=(1, 2)),
        Flatten(),
        Dense(units=5, kernel_initialiser="he_normal"),
        Dropout(rate=0.5),
        Dense(units=3),
        Softmax(),
    ),
)
CUTS = st.sets(st.integers(1, len(SMALL.layers) - 1)).map(lambda cuts: [0, *sorted(cuts), len(SMALL.layers)])


def test_every_layer_gets_a_name_and_keeps_its_own() -> None:
    names = " ".join(layer.name for layer in SMALL.layers)
    assert names == "conv1 relu1 dropout1 pool1 mix tanh1 pool2 flatten dense1 dropout2 dense2 softmax"


def test_shapes_are_those_worked_by_hand() -> None:
    assert SMALL.shapes == (
        *[(6, 5, 4)] * 3,
        (6, 2, 2),
        *[(4, 2, 2)] * 2,
        (4, 2, 1),
        (8,),
        (5,),
        (5,),
        (3,),
        (3,),
    )
    assert SMALL.num_classes == 3


def test_parameters_stand_in_canonical_order_without_gaps() -> None:
    assert [(p.name, p.shape, p.offset, p.fan_in, p.fan_out, p.initialiser, p.constant) for p in SMALL.parameters] == [
        ("conv1/kernel", (6, 1, 3, 2), 0, 6, 36, "glorot_uniform", 0.0),
        ("conv1/bias", (6,), 36, 6, 36, None, 0.1),
        ("mix/kernel", (4, 6, 1, 1), 42, 6, 4, "glorot_uniform", 0.0),
        ("mix/bias", (4,), 66, 6, 4, None, 0.0),
        ("dense1/kernel", (5, 8), 70, 8, 5, "he_normal", 0.0),
        ("dense1/bias", (5,), 110, 8, 5, None, 0.0),
        ("dense2/kernel", (3, 5), 115, 5, 3, "glorot_uniform", 0.0),
        ("dense2/bias", (3,), 130, 5, 3, None, 0.0),
    ]
    assert SMALL.size == 133
    assert [p.layer_index for p in SMALL.parameters] == [0, 0, 4, 4, 8, 8, 10, 10]


def test_a_parameter_views_its_part_of_a_vector() -> None:
    vector = np.arange(SMALL.size, dtype=np.float32)
    view = SMALL.parameters[2].view(vector)
    assert view.shape == (4, 6, 1, 1)
    assert view.ravel().tolist() == list(range(42, 66))
    view[:] = 0
    assert vector.sum() == sum(range(133)) - sum(range(42, 66))


def test_it_survives_json_and_pickle_exactly() -> None:
    assert Architecture.from_dict(json.loads(json.dumps(SMALL.to_dict()))) == SMALL
    assert pickle.loads(pickle.dumps(SMALL.segment(2, 5))) == SMALL.segment(2, 5)
    assert hash(Architecture.from_dict(SMALL.to_dict())) == hash(SMALL)


def test_an_architecture_description_without_layers_is_refused() -> None:
    with pytest.raises(NetworkError, match="architecture: 'layers' is missing; it needs name, input_shape and layers"):
        Architecture.from_dict({"name": "x", "input_shape": [1, 2, 2]})


@given(CUTS)
def test_segments_of_any_cut_tile_the_architecture(cuts: list[int]) -> None:
    segments = [SMALL.segment(start, stop) for start, stop in pairwise(cuts)]
    assert sum((segment.layers for segment in segments), ()) == SMALL.layers
    assert sum((segment.shapes for segment in segments), ()) == SMALL.shapes
    assert [segment.is_first for segment in segments] == [True] + [False] * (len(segments) - 1)
    assert [segment.is_last for segment in segments] == [False] * (len(segments) - 1) + [True]
    assert sum((segment.dropouts for segment in segments), ()) == SMALL.whole.dropouts
    offset, shape = 0, SMALL.input_shape
    for segment in segments:
        assert (segment.offset, segment.input_shape) == (offset, shape)
        assert all(p.moved(offset) in SMALL.parameters for p in segment.parameters)
        assert sum(p.size for p in segment.parameters) == segment.size
        offset, shape = offset + segment.size, segment.output_shape
    assert (offset, shape) == (SMALL.size, (3,))


def test_the_whole_is_one_segment_with_the_same_parameters() -> None:
    whole = SMALL.whole
    assert (whole.start, whole.stop, whole.offset, whole.size) == (0, 12, 0, 133)
    assert whole.parameters == SMALL.parameters
    assert whole.dropouts == (("dropout1", 2, (6, 5, 4), 0.1), ("dropout2", 9, (5,), 0.5))


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 3), (4, 3), (0, 13)])
def test_a_segment_outside_the_layers_is_refused(start: int, stop: int) -> None:
    with pytest.raises(NetworkError, match=rf"network 'small': layers {start} to {stop} are no segment; .* stop <= 12"):
        SMALL.segment(start, stop)


class BatchNorm2d:
    """Stands for a framework's own layer, given by mistake."""


HEAD = (Flatten(), Dense(units=3), Softmax())


@pytest.mark.parametrize(
    ("shape", "layers", "message"),
    [
        ((28, 28), HEAD, "network 'x': input shape is (28, 28); it must be (channels, height, width), each at least 1"),
        ((1, 0, 28), HEAD, "network 'x': input shape is (1, 0, 28); it must be"),
        (28, HEAD, "network 'x': input shape is 28; it must be"),
        ((1, 4, 4), (), "network 'x': it ends in nothing; it must end in a dense (or a native) and a softmax layer"),
        ((1, 4, 4), HEAD[:2], "network 'x': it ends in flatten 'flatten', dense 'dense1'; it must end in a dense (or"),
        (
            (1, 4, 4),
            (Flatten(), Softmax()),
            "network 'x': it ends in flatten 'flatten', softmax 'softmax'; it must end",
        ),
        (
            (1, 4, 4),
            HEAD[1:],
            "dense 'dense1': its input has shape (1, 4, 4) but it needs (units,); put a flatten layer",
        ),
        (
            (1, 4, 4),
            (Flatten(), Softmax(), *HEAD[1:]),
            "softmax 'softmax': softmax is the loss head and can only be the",
        ),
        (
            (1, 4, 4),
            (ReLU(name="a"), Tanh(name="a"), *HEAD),
            "network 'x': two layers are named 'a'; give each its own",
        ),
        ((1, 4, 4), ("relu", *HEAD), "network 'x': layer 1 is 'relu'; it must be a layer spec"),
        ((1, 4, 4), (BatchNorm2d(), *HEAD), "BatchNorm2d: batch normalisation is refused: statistics over the global"),
        (
            (1, 4, 4),
            (MaxPool2D(), MaxPool2D(), MaxPool2D(), *HEAD),
            "max_pool 'pool3': its window of 2 x 2 is larger than its input of 1 x 1",
        ),
    ],
)
def test_an_architecture_that_does_not_fit_is_refused_by_name(shape: Any, layers: Any, message: str) -> None:
    with pytest.raises(NetworkError) as caught:
        Architecture("x", shape, layers)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
