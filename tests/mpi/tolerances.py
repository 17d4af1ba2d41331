"""How far apart a number of ranks and one process may be. The reasons stand here; measured figures are far below."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpcnn.network.architecture import Architecture

# A gradient is a sum over rows and positions in float32. Cutting the rows otherwise re-associates that sum: each of the
# K partial sums is rounded once, relative error at most K u of the terms' magnitudes, u = 2^-24 = 6e-8, with K of a few
# dozen (rows of a batch, blocks of a convolution). Rows' own terms agree but for what a convolution's kernel rounds
# otherwise at another number of rows, some sqrt(9 * 48) = 21 u. Together below 100 u = 6e-6 of a tensor's norm.
STEP_0 = 1e-5
# Five updates of rate 0.05 carry the gradients' error on; Nesterov's momentum adds up at most 1/(1 - 0.9) = 10 of them.
# Measured against the update (weights after five steps less the start), as rule 2's step-5 figure is.
STEP_5 = 1e-4


def assert_tensors_near(architecture: Architecture, actual: Any, expected: Any, bound: float) -> None:
    """Of each tensor: norm of the difference within `bound` of the expected one's norm."""
    for parameter in architecture.parameters:
        want, got = parameter.view(expected), parameter.view(actual)
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert error <= bound, f"{parameter.name}: {error:.1e} of the norm"
