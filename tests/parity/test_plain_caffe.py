"""The plain Caffe script against hpcnn on Caffe: what hpcnn changes of Caffe leaves the mathematics as they are.

Both start from the same weights and see the same rows and masks. The bounds are those of plain_scripts.py.
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

pytestmark = pytest.mark.needs("caffe")


class OnCaffe(Problem):
    """The flags that hpcnn needs beside those that both programs take."""

    def flags(self) -> list[str]:
        return [*super().flags(), "--backend", "caffe"]


def both(name: str, folder_of: pytest.TempPathFactory) -> tuple[Problem, Trained, Trained]:
    given = problem(SETTINGS[name], folder_of.mktemp("plain"))
    ours = hpcnn_training(OnCaffe(given.setting, given.architecture, given.folder, given.batch), ranks=1)
    return given, ours, plain_training(given, "caffe_script.py")


def test_it_takes_the_same_steps_of_sgd(tmp_path_factory: pytest.TempPathFactory) -> None:
    given, ours, theirs = both("3layer-nesterov", tmp_path_factory)
    assert_same_first_step(ours, theirs)
    assert_same_losses(ours, theirs)
    assert_same_weights(ours, theirs, given.initial)


@pytest.mark.parametrize("name", ["3layer-adam", "2layer-adam"])
def test_it_takes_the_same_first_step(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    # No more: Caffe's Adam adds epsilon before the bias correction, a formula that the first loss knows nothing of.
    _, ours, theirs = both(name, tmp_path_factory)
    assert_same_first_step(ours, theirs)
