"""The plain scripts on Theano against hpcnn on Theano: what hpcnn changes of Theano is what rule 2 says, and no more.

The scripts have Theano's own ReLU and pool, whose gradient is another one where cells of a pool tie or a ReLU gets
exactly 0. In digits most windows are of equal background. So the steps are held to each other on rows of noise, in
which nothing ties and all gradients are the same; of digits the first loss is, which no gradient has touched yet.
The bounds are those of plain_scripts.py, whose derivation holds for any order of a sum.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity.plain_scripts import (
    ROWS,
    SEED,
    SETTINGS,
    STEP_TOLERANCE,
    Problem,
    Trained,
    assert_same_first_step,
    assert_same_losses,
    assert_same_weights,
    hpcnn_training,
    plain_training,
    problem,
)

pytestmark = pytest.mark.needs("theano", "lasagne")

SCRIPTS = ("lasagne_script.py", "keras_theano_script.py")


class OnTheano(Problem):
    """The flags that hpcnn needs beside those that both programs take."""

    def flags(self) -> list[str]:
        return [*super().flags(), "--backend", "lasagne"]


def ours(given: Problem) -> Trained:
    return hpcnn_training(OnTheano(given.setting, given.architecture, given.folder, given.batch), ranks=1)


def make_noise(given: Problem) -> None:
    """Other rows in place of the digits."""
    header = given.rows.read_text(encoding="utf-8").partition("\n")[0]
    pixels = np.random.default_rng(SEED).integers(0, 256, (ROWS, 784))
    rows = np.column_stack([pixels, np.arange(ROWS) % 10])
    np.savetxt(given.rows, rows, "%d", ",", header=header, comments="")


@pytest.fixture(scope="module", params=["3layer-nesterov", "2layer-adam"])
def noise(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Problem, Trained]:
    given = problem(SETTINGS[request.param], tmp_path_factory.mktemp("plain"))
    make_noise(given)
    return given, ours(given)


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_takes_the_same_steps_where_nothing_ties(script: str, noise: tuple[Problem, Trained]) -> None:
    given, left = noise
    right = plain_training(given, script)
    assert_same_first_step(left, right)
    # Lasagne's and Keras's Adam add epsilon before the bias correction, a formula that the first step says nothing of.
    if "adam" not in given.setting.optimizer:
        assert_same_losses(left, right)
        assert_same_weights(left, right, given.initial)


def test_on_digits_the_first_loss_is_the_same_and_theanos_own_gradient_is_not(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    given = problem(SETTINGS["3layer-nesterov"], tmp_path_factory.mktemp("plain"))
    left, right = ours(given), plain_training(given, "lasagne_script.py")
    assert left.losses[0] == pytest.approx(right.losses[0], rel=STEP_TOLERANCE)
    # If this ever fails, Theano has rule 2's gradient, and the digits can take the noise's place.
    assert left.norms[0] != pytest.approx(right.norms[0], rel=100 * STEP_TOLERANCE)
