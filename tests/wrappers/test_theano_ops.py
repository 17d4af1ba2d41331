"""ReLU and max pool on Theano have rule 2's slopes, and Theano's own do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpcnn.network import MaxPool2D

pytestmark = pytest.mark.needs("theano")


def slope(function: Any, x: Any) -> Any:
    """Of the sum of what `function` makes of `x`."""
    from hpcnn.wrappers.theano_import import import_theano

    theano = import_theano()
    variable = theano.tensor.TensorType("float32", (False,) * np.ndim(x))()
    return theano.function([variable], theano.grad(function(variable).sum(), variable))(np.asarray(x, np.float32))


def test_theanos_own_relu_has_slope_one_half_at_0_and_ours_has_0() -> None:
    from hpcnn.wrappers.theano_import import import_theano
    from hpcnn.wrappers.theano_ops import relu

    x = [-1.0, -0.0, 0.0, 2.0]
    assert slope(import_theano().tensor.nnet.relu, x).tolist() == [0.0, 0.5, 0.5, 1.0]
    assert slope(relu, x).tolist() == [0.0, 0.0, 0.0, 1.0]


def test_theanos_own_pool_gives_its_gradient_to_all_that_tie_and_ours_to_the_first() -> None:
    from hpcnn.wrappers.theano_import import import_theano
    from hpcnn.wrappers.theano_ops import first_max_pool

    import_theano()
    from theano.tensor.signal.pool import pool_2d

    x = np.zeros((1, 1, 2, 2))
    assert slope(lambda image: pool_2d(image, ws=(2, 2), ignore_border=True), x).ravel().tolist() == [1.0] * 4
    assert slope(first_max_pool(MaxPool2D()), x).ravel().tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("pool", [MaxPool2D(), MaxPool2D(size=3, stride=(1, 2)), MaxPool2D(size=2, stride=3)], ids=str)
def test_images_in_any_order_of_memory_are_pooled_alike(pool: MaxPool2D) -> None:
    from hpcnn.wrappers.theano_import import import_theano
    from hpcnn.wrappers.theano_ops import first_max_pool

    theano = import_theano()
    x = np.random.default_rng(0).integers(0, 3, (2, 3, 8, 7)).astype(np.float32)
    image = theano.tensor.TensorType("float32", (False,) * 4)()
    found = []
    for given, view in ((x, image), (np.ascontiguousarray(x.transpose(1, 0, 3, 2)), image.dimshuffle(1, 0, 3, 2))):
        output = first_max_pool(pool)(view)
        found.append(theano.function([image], [output, theano.grad((output**2).sum(), view)])(given))
    assert all(map(np.array_equal, *found))
