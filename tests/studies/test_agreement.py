"""The agreement of each pair of runs: counted by hand here, in every corner of the matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hpcnn.studies.agreement import agreement_lines, agreement_pairs, pairs_to_dicts
from hpcnn.studies.compare import compare
from hpcnn.studies.report import json_text, render
from tests.studies.made_runs import curve, make_run

LABELS = {str(row): str(row % 10) for row in range(1, 201)}


def run(name: str, *, wrong: int = 0, loss: float = 1.0, test: str = "data/test.csv") -> Any:
    """Predictions of which the first `wrong` are one class further, and losses `loss` times as large."""
    made = make_run(name, curve(), settings={"test": test})
    labels = {row: str((int(label) + (place < wrong)) % 10) for place, (row, label) in enumerate(LABELS.items())}
    losses = {**made.losses, "train_loss": np.asarray(made.losses["train_loss"]) * loss}
    return replace(made, predictions=labels, losses=losses)


def test_each_pair_is_counted_once_in_order() -> None:
    runs = [run("a"), run("b", wrong=3), run("c", wrong=10, loss=1.01)]
    pairs = agreement_pairs(runs)
    assert [pair.runs for pair in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [pair.predictions for pair in pairs] == [1 - 3 / 200, 1 - 10 / 200, 1 - 7 / 200]
    assert [pair.loss for pair in pairs] == [0, pytest.approx(0.01), pytest.approx(0.01)]
    assert pairs_to_dicts(pairs)[0] == {"runs": ["a", "b"], "predictions": 1 - 3 / 200, "loss": 0.0}


def test_the_matrix_has_predictions_above_and_losses_below_its_diagonal() -> None:
    lines = agreement_lines([run("a"), run("b", wrong=3), run("c", wrong=10, loss=1.01)])
    assert [line.split() for line in lines[1:4]] == [["1", "a"], ["2", "b"], ["3", "c"]]
    assert [line.split() for line in lines[5:]] == [
        ["1", "-", "98.50%", "95.00%"],
        ["2", "0.00%", "-", "96.50%"],
        ["3", "1.00%", "1.00%", "-"],
    ]
    assert max(map(len, lines)) <= 100


def test_what_cannot_be_compared_is_left_out() -> None:
    runs = [run("a"), run("b", test="data/other.csv"), replace(run("c"), predictions=None)]
    assert [pair.predictions for pair in agreement_pairs(runs)] == [None, None, None]
    assert [line.split()[1:] for line in agreement_lines(runs)[5:]] == [
        ["-"] * 3,
        ["0.00%", "-", "-"],
        ["0.00%"] * 2 + ["-"],
    ]


def test_compare_shows_it_for_several_runs_and_not_for_one() -> None:
    baseline, first, second = run("a"), run("b", wrong=1), run("c", wrong=2)
    one = [compare(baseline, first)]
    several = [*one, compare(baseline, second)]
    assert "agreement of each pair" not in render(one)
    assert "agreement of each pair" in render(several)
    assert '"pairs"' not in json_text(one)
    assert '"predictions": 0.995' in json_text(several)
