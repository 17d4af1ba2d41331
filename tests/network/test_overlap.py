"""Where a network is cut for its gradients to travel early: where that ends the step first, and only where it does."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import LaunchError
from hpcnn.network.architecture import Architecture
from hpcnn.network.cost import layer_costs
from hpcnn.network.layers import Dense, Flatten, Softmax
from hpcnn.network.overlap import CUT_SECONDS, MESSAGE_SECONDS, partition_for_overlap, step_seconds
from hpcnn.network.zoo import find_network, networks

ZOO = [network.build((1, 28, 28), 10) for network in networks()]


def starts(architecture: Architecture, rows: int, segments: int | None = None) -> list[str]:
    cut = partition_for_overlap(architecture, rows, segments)
    assert [layer for segment in cut for layer in segment.layers] == list(architecture.layers)
    return [segment.layers[0].name for segment in cut]


def test_much_traffic_behind_much_arithmetic_goes_ahead() -> None:
    """The 3.2 million parameters of a dense layer, before the convolutions go backward."""
    architecture = find_network("cnn2d_2layer_fullconnected_2layer").build((1, 28, 28), 10)
    assert starts(architecture, 16) == ["conv1", "dense1"]
    assert starts(architecture, 64) == ["conv1", "dense1"]


def test_where_a_message_is_short_beside_the_arithmetic_nothing_is_cut() -> None:
    architecture = find_network("cnn2d_3layer_fullconnected_3layer").build((1, 28, 28), 10)
    assert all(starts(architecture, rows) == ["conv1"] for rows in (16, 64, 250))


def test_a_network_whose_traffic_is_in_its_first_layer_stays_whole() -> None:
    layers = (Flatten(), Dense(units=2000), Dense(units=10), Softmax())
    assert len(starts(Architecture("first", (1, 28, 28), layers), 64)) == 1


@pytest.mark.parametrize("architecture", ZOO, ids=lambda one: one.name)
@given(rows=st.integers(1, 5000))
def test_no_cut_of_as_few_segments_ends_sooner(architecture: Architecture, rows: int) -> None:
    costs = layer_costs(architecture)
    chosen = [segment.start for segment in partition_for_overlap(architecture, rows)]
    places = [place for place in range(1, len(costs) - 1) if costs[place].parameters]
    cuts = [[0, *cut] for count in range(4) for cut in combinations(places, count)]
    seconds = step_seconds(costs, chosen, rows)
    assert all(seconds <= step_seconds(costs, cut, rows) for cut in cuts if len(cut) <= len(chosen))
    assert all(seconds <= 1.01 * step_seconds(costs, cut, rows) for cut in cuts)


def test_the_model_by_hand() -> None:
    """Two dense layers, whose second is added while the first goes backward."""
    architecture = Architecture("two", (1, 10, 10), (Flatten(), Dense(units=1000), Dense(units=1000), Softmax()))
    costs = layer_costs(architecture)
    last = 2 * 100 * (costs[2].flops + costs[3].flops) / 5e10
    last += CUT_SECONDS
    first = last + 2 * 100 * costs[1].flops / 5e10
    moved = max(first, last + MESSAGE_SECONDS + 4 * 1_001_000 / 2e9) + MESSAGE_SECONDS + 4 * 101_000 / 2e9
    assert step_seconds(costs, [0, 2], 100) == pytest.approx(moved)
    assert step_seconds(costs, [0], 100) == pytest.approx(first - CUT_SECONDS + MESSAGE_SECONDS + 4 * 1_102_000 / 2e9)


@pytest.mark.parametrize("segments", [1, 2, 3, 4, 5])
def test_as_many_as_were_asked_for(segments: int) -> None:
    assert all(len(starts(architecture, 64, segments)) == segments for architecture in ZOO)


def test_more_segments_than_layers_are_refused() -> None:
    with pytest.raises(LaunchError, match="can be cut into 1 to"):
        partition_for_overlap(ZOO[0], 64, 100)
