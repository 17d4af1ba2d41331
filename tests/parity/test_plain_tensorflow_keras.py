"""hpcnn against what a practitioner would write in TensorFlow and in Keras, as test_plain_torch.py does with PyTorch.

The plain scripts import nothing of ours and use their frameworks' own layers, gradients and optimizers, in channels
last: what this holds besides is the way between the layouts. The bounds are those of plain_scripts.py, whose derivation
holds for any order of a sum.
"""

from __future__ import annotations

import pytest

from tests.parity.plain_scripts import (
    SETTINGS,
    Problem,
    Trained,
    assert_same_first_step,
    assert_same_losses,
    assert_same_weights,
    hpcnn_training,
    plain_training,
    problem,
)


@pytest.fixture(scope="module", params=SETTINGS)
def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Problem, Trained]:
    given = problem(SETTINGS[request.param], tmp_path_factory.mktemp("plain"))
    return given, hpcnn_training(given, ranks=1)


def test_tensorflow_takes_the_same_steps(ours: tuple[Problem, Trained]) -> None:
    given, left = ours
    right = plain_training(given, "tensorflow_script.py")
    assert_same_first_step(left, right)
    assert_same_losses(left, right)
    assert_same_weights(left, right, given.initial)


@pytest.mark.parametrize("ours", [name for name in SETTINGS if "adam" in name], indirect=True)
def test_keras_takes_the_same_first_step_of_adam(ours: tuple[Problem, Trained]) -> None:
    given, left = ours
    # No more: Keras's Adam adds epsilon before the bias correction, a formula that the first loss knows nothing of.
    assert_same_first_step(left, plain_training(given, "keras_script.py", env={"KERAS_BACKEND": "tensorflow"}))


@pytest.mark.parametrize("ours", ["3layer-nesterov"], indirect=True)
@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_keras_takes_the_same_steps_of_sgd(ours: tuple[Problem, Trained], backend: str) -> None:
    given, left = ours
    right = plain_training(given, "keras_script.py", env={"KERAS_BACKEND": backend})
    assert_same_first_step(left, right)
    assert_same_losses(left, right)
    assert_same_weights(left, right, given.initial)
