"""What any framework's own parallelism is held to."""

from __future__ import annotations

import numpy as np

from hpcnn.network.initial import initial_weights
from hpcnn.network.zoo import find_network
from tests.mpi.tolerances import STEP_0, STEP_5, assert_tensors_near
from tests.wrappers.fused_on_ranks import FusedSteps

CURVE = 1e-4
"""Of a loss, a mean over 31 rows: as far off as the weights."""


def assert_one_process(found: FusedSteps, alone: FusedSteps) -> None:
    """Step 0's gradient, and five updates, are those of one process, and the same bits on all ranks."""
    architecture = find_network("cnn2d_3layer_fullconnected_3layer").build((1, 28, 28), 10)
    assert_tensors_near(architecture, found.gradients[0], alone.gradients[0], STEP_0)
    start = initial_weights(architecture, 1)
    assert_tensors_near(architecture, found.weights - start, alone.weights - start, STEP_5)
    np.testing.assert_allclose(found.losses, alone.losses, rtol=CURVE)
    assert found.correct == alone.correct
    assert found.alike
