from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import NetworkError
from hpcnn.network import (
    AveragePool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool2D,
    ReLU,
    Softmax,
    output_shape,
    resolved_padding,
)

LENGTH = st.integers(1, 40)
KERNEL = st.integers(1, 8)
STRIDE = st.integers(1, 5)


def tensorflow_same(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """https://www.tensorflow.org/api_docs/python/tf/nn."""
    pad_along = max(kernel - stride, 0) if length % stride == 0 else max(kernel - length % stride, 0)
    return pad_along // 2, pad_along - pad_along // 2


@given(LENGTH, LENGTH, KERNEL, KERNEL, STRIDE, STRIDE)
def test_same_padding_is_tensorflows_and_keeps_ceil_of_input_over_stride(
    height: int, width: int, kh: int, kw: int, sh: int, sw: int
) -> None:
    layer = Conv2D(filters=2, kernel=(kh, kw), stride=(sh, sw), padding="same")
    shape = (3, height, width)
    assert resolved_padding(layer, shape) == (tensorflow_same(height, kh, sh), tensorflow_same(width, kw, sw))
    assert output_shape(layer, shape) == (2, -(-height // sh), -(-width // sw))


@pytest.mark.parametrize(
    ("length", "kernel", "stride", "expected"),
    [
        (28, 3, 1, (1, 1)),
        (28, 2, 1, (0, 1)),
        (28, 4, 1, (1, 2)),
        (28, 5, 2, (1, 2)),
        (27, 4, 2, (1, 2)),
        (7, 3, 2, (1, 1)),
    ],
)
def test_same_padding_puts_the_odd_one_last(length: int, kernel: int, stride: int, expected: tuple[int, int]) -> None:
    layer = Conv2D(filters=1, kernel=kernel, stride=stride, padding="same")
    assert resolved_padding(layer, (1, length, length)) == (expected, expected)


@given(LENGTH, KERNEL, STRIDE, st.integers(0, 3), st.integers(0, 3))
def test_explicit_padding_and_pools_count_the_windows_that_fit(
    length: int, size: int, stride: int, before: int, after: int
) -> None:
    padded = length + before + after
    starts = [start for start in range(0, padded, stride) if start + size <= padded]
    conv = Conv2D(filters=2, kernel=(size, 1), stride=(stride, 1), padding=((before, after), (0, 0)))
    pool = MaxPool2D(size=(1, size), stride=(1, stride))
    assert resolved_padding(conv, (1, length, 4)) == ((before, after), (0, 0))
    if starts:
        assert output_shape(conv, (1, length, 4)) == (2, len(starts), 4)
        assert output_shape(pool, (5, 4, padded)) == (5, 4, len(starts))
    else:
        for layer, shape in ((conv, (1, length, 4)), (pool, (5, 4, padded))):
            with pytest.raises(NetworkError, match="is larger than its input"):
                output_shape(layer, shape)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (Conv2D(filters=4, kernel=5), (1, 28, 28), (4, 24, 24)),
        (Conv2D(filters=4, kernel=3, groups=2), (6, 5, 5), (4, 3, 3)),
        (AveragePool2D(size=2), (3, 7, 5), (3, 3, 2)),
        (Flatten(), (3, 4, 5), (60,)),
        (Dense(units=7), (60,), (7,)),
        (ReLU(), (3, 4, 5), (3, 4, 5)),
        (Dropout(rate=0.5), (60,), (60,)),
        (Softmax(), (10,), (10,)),
    ],
)
def test_shapes_worked_by_hand(layer: Layer, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert output_shape(layer, shape) == expected


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (
            Conv2D(filters=4, kernel=3, name="c"),
            (9,),
            "convolution 'c': its input has shape (9,) but it needs (channels",
        ),
        (Conv2D(filters=4, kernel=3, padding="same", name="c"), (9,), "convolution 'c': its input has shape (9,)"),
        (Conv2D(filters=4, kernel=3, groups=2, name="c"), (3, 5, 5), "'c': its 2 groups do not divide the 3 channels"),
        (
            Conv2D(filters=4, kernel=6, name="c"),
            (3, 5, 7),
            "'c': its window of 6 x 6 is larger than its input of 5 x 7",
        ),
        (MaxPool2D(name="p"), (3, 1, 7), "max_pool 'p': its window of 2 x 2 is larger than its input of 1 x 7"),
        (
            Dense(units=2, name="d"),
            (3, 1, 7),
            "dense 'd': its input has shape (3, 1, 7) but it needs (units,); put a fl",
        ),
        (Softmax(name="s"), (3, 1, 7), "softmax 's': its input has shape (3, 1, 7)"),
    ],
)
def test_a_layer_that_does_not_fit_is_named(layer: Layer, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(NetworkError) as caught:
        output_shape(layer, shape)
    assert message in str(caught.value)
