"""The table at a run's end: seconds of every rank and phase, rows a second, the test file's figures."""

from __future__ import annotations

import numpy as np
import pytest

from hpcnn.records.phases import PHASES, Tally
from hpcnn.records.run_folder import LossRow, RankTimes
from hpcnn.training.evaluate import Evaluation
from hpcnn.training.summary import epoch_means, summary_lines, training_seconds


def times(rank: int, seconds: dict[tuple[int, str], float]) -> RankTimes:
    rows = [(epoch, phase, Tally(1, value, value, value)) for (epoch, phase), value in seconds.items()]
    return RankTimes(rank, "node1", sum(seconds.values()), rows)


FAST = times(
    0, {(0, "start"): 3.0, (0, "evaluate"): 9.0, (1, "forward"): 1.0, (2, "forward"): 1.5, (2, "evaluate"): 8.0}
)
SLOW = times(1, {(0, "start"): 4.0, (1, "forward"): 2.0, (1, "backward"): 2.0, (1, "checkpoint"): 9.0})


def loss_rows(first: int, steps: int, batch: int) -> list[LossRow]:
    return [LossRow(1, step, batch * (step + 1), 0.1, 2.3, 0.1, 1.0) for step in range(first, first + steps)]


def test_every_rank_has_a_line_with_its_seconds_of_every_phase_over_all_epochs() -> None:
    _, head, first, second, *_ = summary_lines([], [FAST, SLOW], None)
    phases = head.split()[1:]
    assert phases == [phase for phase in PHASES if phase != "gradient"]  # no rank computed both in one call
    both = times(2, {(1, "gradient"): 3.0})
    assert summary_lines([], [both], None)[1].split()[1:] == [
        phase for phase in PHASES if phase not in ("forward", "backward")
    ]
    found = dict(zip(phases, first.split()[2:], strict=True))
    assert first.split()[:2] == ["rank", "0"]
    assert (found["forward"], found["evaluate"], found["start"], found["wait"]) == ("2.50", "17.00", "3.00", "0.00")
    assert dict(zip(phases, second.split()[2:], strict=True))["checkpoint"] == "9.00"


def test_rows_a_second_are_those_of_the_slowest_rank_in_training_alone() -> None:
    assert training_seconds([FAST, SLOW]) == 4.0
    lines = summary_lines(loss_rows(0, 8, 50), [FAST, SLOW], None)
    assert lines[-1] == "100 training rows a second"


def test_a_resumed_run_counts_the_rows_that_it_trained_itself() -> None:
    lines = summary_lines(loss_rows(100, 8, 50), [FAST, SLOW], None, 100 * 50)
    assert lines[-1] == "100 training rows a second"


def test_a_run_without_steps_has_no_rate() -> None:
    assert training_seconds([]) == 0.0
    assert not any("a second" in line for line in summary_lines([], [FAST], None))


def test_the_test_files_figures_are_shown_as_far_as_there_are_labels() -> None:
    nothing = np.empty(0, np.int64)
    assert summary_lines([], [], Evaluation(1000, 0.25, 0.975, nothing))[-1] == (
        "test: 1,000 rows, loss 0.2500, accuracy 97.50%"
    )
    assert summary_lines([], [], Evaluation(1000, None, None, nothing))[-1] == "test: 1,000 rows, no labels"


def test_an_epochs_means_are_over_its_rows_whatever_the_sizes_of_its_batches() -> None:
    def row(epoch: int, samples: int, loss: float, accuracy: float) -> LossRow:
        return LossRow(epoch, 0, samples, 0.1, loss, accuracy, 1.0)

    rows = [row(1, 110, 9.0, 0.0), row(2, 120, 2.0, 0.5), row(2, 125, 5.0, 1.0)]
    loss, accuracy = epoch_means(rows, 100)
    assert loss == pytest.approx((10 * 2.0 + 5 * 5.0) / 15)
    assert accuracy == pytest.approx((10 * 0.5 + 5 * 1.0) / 15)
    assert epoch_means(rows[:1], 100) == pytest.approx((9.0, 0.0))
