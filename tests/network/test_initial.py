from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.network import Architecture, Conv2D, Dense, Flatten, Softmax, find_network, initial_weights, segment_weights

ZOO = ("cnn2d_3layer_fullconnected_3layer", "cnn2d_2layer_fullconnected_2layer")


def zoo(name: str) -> Architecture:
    return find_network(name).build((1, 28, 28), 10)


@given(st.integers(0, 16), st.integers(1, 17), st.integers(0, 2**64 - 1))
def test_a_segment_makes_its_own_slice_of_the_whole(start: int, length: int, seed: int) -> None:
    architecture = find_network(ZOO[0]).build((1, 8, 8), 3)
    segment = architecture.segment(start, min(start + length, len(architecture.layers)))
    whole, part = initial_weights(architecture, seed), segment_weights(segment, seed)
    assert part.dtype == np.float32
    assert part.tobytes() == whole[segment.offset : segment.offset + segment.size].tobytes()


# These bits are part of every result that was ever recorded. Uniform draws use exact and correctly rounded operations
# only (multiplication, subtraction, square root), so they hold on every machine and NumPy.
@pytest.mark.parametrize(("name", "digest"), [(ZOO[0], "a25bec438ca1775e"), (ZOO[1], "5a97d28c1679c29a")])
def test_the_bits_of_a_start_never_change(name: str, digest: str) -> None:
    assert sha256(initial_weights(zoo(name), 0).astype("<f4").tobytes()).hexdigest()[:16] == digest


def test_a_normal_start_has_its_golden_values() -> None:
    layers = (Flatten(), Dense(units=3, kernel_initialiser="he_normal"), Softmax())
    weights = initial_weights(Architecture("x", (1, 1, 2), layers), 7)
    # One unit in the last place of float32, for the logarithm and cosine of another NumPy.
    assert weights == pytest.approx(
        [1.06518412, -0.524655163, 0.623935401, -0.0315940492, -0.640097916, 0.382791162, 0.0, 0.0, 0.0], rel=2**-23
    )


def test_seeds_and_layers_have_streams_of_their_own() -> None:
    layers = (Flatten(), Dense(units=4), Dense(units=4), Softmax())
    architecture = Architecture("x", (1, 2, 2), layers)
    first, second = (architecture.parameters[index].view(initial_weights(architecture, 0)) for index in (0, 2))
    assert first.shape == second.shape
    assert not np.intersect1d(first, second).size
    assert not np.intersect1d(first, initial_weights(architecture, 1)[:16]).size


def test_biases_start_at_their_constant() -> None:
    layers = (Conv2D(filters=2, kernel=1, bias=0.01), Flatten(), Dense(units=3, bias=-1), Softmax())
    architecture = Architecture("x", (1, 2, 2), layers)
    weights = initial_weights(architecture, 0)
    assert architecture.parameters[1].view(weights).tolist() == [np.float32(0.01)] * 2
    assert architecture.parameters[3].view(weights).tolist() == [-1] * 3


@pytest.mark.parametrize("name", ZOO)
def test_kernels_of_the_zoo_stay_within_their_initialisers_limit(name: str) -> None:
    architecture = zoo(name)
    weights = initial_weights(architecture, 3)
    for parameter in architecture.parameters:
        tensor = np.abs(parameter.view(weights))
        if parameter.role == "bias":
            assert tensor.max() == 0
        else:
            lecun = name == ZOO[0]
            fans = parameter.fan_in if lecun else (parameter.fan_in + parameter.fan_out) / 2
            limit = np.sqrt(3 / fans)
            # At least 288 draws: all miss the outer fifth with probability 0.8^288 < 1e-27.
            assert 0.8 * limit < tensor.max() <= np.float32(limit)
