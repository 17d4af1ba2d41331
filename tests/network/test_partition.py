from __future__ import annotations

import math
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ConfigError, LaunchError
from hpcnn.network import Architecture, Conv2D, Dense, Flatten, MaxPool2D, ReLU, Softmax, find_network, layer_costs
from hpcnn.network.partition import balance_stages, partition, partition_at

SMALL = Architecture(
    "small", (1, 8, 8), (Conv2D(filters=2, kernel=3), ReLU(), MaxPool2D(size=2), Flatten(), Dense(units=3), Softmax())
)


def runs(starts: list[int] | tuple[int, ...], costs: list[float]) -> list[float]:
    return [sum(costs[start:stop]) for start, stop in pairwise([*starts, len(costs)])]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.data())
def test_no_other_cut_has_a_smaller_largest_stage_nor_evener_others(costs: list[int], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(costs)))
    starts = balance_stages(costs, stages)
    assert starts[0] == 0
    assert sorted(set(starts)) == starts
    assert len(starts) == stages
    assert starts[-1] < len(costs)

    def badness(cut: list[int] | tuple[int, ...]) -> tuple[float, float]:
        return max(runs(cut, costs)), sum(run**2 for run in runs(cut, costs))

    assert badness(starts) == min(badness((0, *rest)) for rest in combinations(range(1, len(costs)), stages - 1))


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=7), st.data())
def test_measured_seconds_are_balanced_up_to_rounding(costs: list[float], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(costs)))
    largest = max(runs(balance_stages(costs, stages), costs))
    cuts = combinations(range(1, len(costs)), stages - 1)
    assert math.isclose(largest, min(max(runs((0, *rest), costs)) for rest in cuts), rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize("costs", [[1.0, math.nan], [1.0, -1.0], [math.inf, 1.0]])
def test_a_cost_that_is_none_is_refused(costs: list[float]) -> None:
    with pytest.raises(ValueError, match="it must be a number of at least 0"):
        balance_stages(costs, 2)


@pytest.mark.parametrize("stages", [0, 3])
def test_more_stages_than_layers_are_refused(stages: int) -> None:
    with pytest.raises(ValueError, match=f"2 layers cannot be cut into {stages} stages"):
        balance_stages([1, 2], stages)


@pytest.mark.parametrize("name", ["cnn2d_3layer_fullconnected_3layer", "cnn2d_2layer_fullconnected_2layer"])
def test_segments_are_contiguous_disjoint_and_exhaustive(name: str) -> None:
    architecture = find_network(name).build((1, 28, 28), 10)
    flops = [cost.flops for cost in layer_costs(architecture)]
    for count in range(1, len(flops)):
        segments = partition(architecture, count)
        assert len(segments) == count
        assert [s.start for s in segments] == [0, *(s.stop for s in segments[:-1])]
        assert segments[-1].stop == len(flops)
        assert sum(s.size for s in segments) == architecture.size
        assert len(segments[-1].layers) >= 2
        if count == 2:
            largest = max(sum(flops[s.start : s.stop]) for s in segments)
            assert largest == min(max(sum(flops[:k]), sum(flops[k:])) for k in range(1, len(flops) - 1))


def test_costs_of_the_caller_count_and_the_softmax_stays_with_its_dense_layer() -> None:
    """Without that rule the softmax, nearly as dear as all else, would be alone in the first of these."""
    assert [s.start for s in partition(SMALL, 2, [1, 1, 1, 1, 2, 5])] == [0, 4]
    assert [s.start for s in partition(SMALL, 2, [5, 1, 1, 1, 1, 1])] == [0, 1]
    assert [s.start for s in partition(SMALL, 5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="2 costs for 6 layers"):
        partition(SMALL, 2, [1.0, 2.0])


def test_a_segment_may_be_without_parameters() -> None:
    assert [s.size for s in partition(SMALL, 5)] == [20, 0, 0, 0, 57]


@pytest.mark.parametrize("count", [0, 6])
def test_a_network_with_too_few_layers_is_refused(count: int) -> None:
    message = (
        f"network 'small' can be cut into 1 to 5 segments, not {count}: "
        "use fewer stages (pp of --grid, --chunks) or a deeper network"
    )
    with pytest.raises(LaunchError) as refusal:
        partition(SMALL, count)
    assert str(refusal.value) == message
    with pytest.raises(LaunchError) as refusal:
        partition_at(SMALL, ["pool1"], count)
    assert str(refusal.value) == message


def test_a_cut_by_names() -> None:
    assert [[layer.name for layer in s.layers] for s in partition_at(SMALL, ["pool1", "dense1"], 3)] == [
        ["conv1", "relu1"],
        ["pool1", "flatten"],
        ["dense1", "softmax"],
    ]
    assert partition_at(SMALL, [], 1) == (SMALL.whole,)


@pytest.mark.parametrize(
    ("firsts", "count", "message"),
    [
        (["conv9"], 2, "--stages conv9: network 'small' has no layer 'conv9', "
         "but conv1, relu1, pool1, flatten, dense1, softmax"),
        (["conv1"], 2, "--stages conv1: 'conv1' is the first layer of all: name the first of each later stage only"),
        (["softmax"], 2, "--stages softmax: 'softmax' is the loss head with 'dense1': cut before 'dense1'"),
        (["flatten", "pool1"], 3,
         "--stages flatten,pool1: 'pool1' is not after 'flatten': name layers in network order"),
        (["pool1", "pool1"], 3, "--stages pool1,pool1: 'pool1' is not after 'pool1': name layers in network order"),
        (["pool1"], 3, "--stages pool1 makes 2 segments, but 3 are needed: name 2 layers"),
        (["pool1", "dense1"], 2, "--stages pool1,dense1 makes 3 segments, but 2 are needed: name 1 layer"),
    ],
)  # fmt: skip
def test_an_impossible_cut_is_refused(firsts: list[str], count: int, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        partition_at(SMALL, firsts, count)
    assert str(refusal.value) == message
