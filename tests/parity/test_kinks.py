from __future__ import annotations

import numpy as np

from hpcnn.network import Architecture, Conv2D, Dense, Flatten, Layer, MaxPool2D, ReLU, Softmax
from tests.parity.kinks import margins


def margins_of(*layers: Layer, image: list[list[float]], weights: list[float]) -> list[float]:
    """Of one row, behind it two more rows without any kink near."""
    x = np.array([[image]], dtype=np.float64)
    far = 10 + 10 * np.arange(x.size, dtype=np.float64).reshape(x.shape)
    architecture = Architecture("probe", x.shape[1:], (*layers, Flatten(), Dense(units=2), Softmax()))
    padded = np.ones(architecture.size)
    padded[: len(weights)] = weights
    found = margins(architecture, padded, np.concatenate([x, far, far]), ())
    assert (found[1:] > 0.09).all()
    return float(found[0])


def test_a_relus_margin_is_its_distance_from_0_relative_to_what_was_added_up() -> None:
    convolution = Conv2D(filters=1, kernel=1)  # pixel - 0.25
    assert margins_of(convolution, ReLU(), image=[[2.0, 0.5]], weights=[1.0, -0.25]) == 0.25 / 0.75
    assert (
        margins_of(convolution, ReLU(), image=[[2.0, 0.25]], weights=[1.0, -0.25]) == 1.75 / 2.25
    )  # 0.25 gives 0: a tie


def test_a_max_pools_margin_is_its_lead_and_ties_have_none() -> None:
    assert margins_of(MaxPool2D(), image=[[8.0, 6.0], [1.0, 1.0]], weights=[]) == 0.25
    assert margins_of(MaxPool2D(), image=[[8.0, 8.0], [6.0, 1.0]], weights=[]) == 0.25
    assert margins_of(MaxPool2D(), image=[[8.0, 8.0], [8.0, 8.0]], weights=[]) == np.inf
