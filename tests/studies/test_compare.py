"""The verdict: same, float noise, or different and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ResultsError
from hpcnn.records.run_folder import LossRow
from hpcnn.studies.compare import compare, run_compare
from hpcnn.studies.reading import Run
from hpcnn.studies.verdict import Verdict
from tests.studies.made_runs import (
    STEPS,
    changed,
    curve,
    drifting,
    make_run,
    scaled,
    with_noise,
    write_run,
)

ROWS = curve()
LABELS = [row % 10 for row in range(1000)]
BASE = make_run("base", ROWS, predictions=LABELS)
TEST = {"test": {"rows": 1000, "loss": 0.1, "accuracy": 0.97}}


def judged(rows: list[LossRow], **others: Any) -> Verdict:
    return compare(BASE, make_run("run", rows, **{"predictions": LABELS, **others}))


def other_labels(count: int) -> list[int]:
    """Predictions of which `count` are not the baseline's."""
    return [(label + 1) % 10 if row < count else label for row, label in enumerate(LABELS)]


def text_of(verdict: Verdict) -> str:
    return "\n".join(verdict.reasons)


def test_equal_to_the_bit_is_the_same() -> None:
    verdict = judged(ROWS)
    assert verdict.verdict == "same"
    assert verdict.causes == ()
    assert verdict.reasons == (
        "every figure of 36 steps is equal to the bit",
        "1,000 of 1,000 predictions agree (100.00%)",
    )


@pytest.mark.parametrize(
    "name", ["train_loss", "train_accuracy", "gradient_norm", "validation_loss", "validation_accuracy"]
)
def test_one_bit_in_any_figure_is_not_the_same_and_is_float_noise(name: str) -> None:
    def bit(step: int, column: str, value: float) -> float:
        return float(np.nextafter(value, 9.0)) if column == name and step == STEPS - 1 else value

    assert judged(changed(ROWS, bit)).verdict == "float noise"


def test_one_prediction_is_not_the_same_and_is_float_noise() -> None:
    verdict = judged(ROWS, predictions=other_labels(1))
    assert verdict.verdict == "float noise"
    assert "999 of 1,000 predictions agree (99.90%)" in verdict.reasons


@given(st.integers(0, 2**32), st.floats(1e-12, 1e-6), st.integers(1, 16), st.integers(1, 8))
def test_noise_of_float32_is_never_called_different(seed: int, size: float, ranks: int, micro_batches: int) -> None:
    verdict = judged(with_noise(ROWS, size, seed), ranks=ranks, settings={"micro_batches": micro_batches})
    assert verdict.verdict == "float noise"
    assert verdict.causes == ()
    assert verdict.figures["apart_from_step"] is None


@given(st.integers(0, 2**32), st.floats(0, 0.3), st.floats(1, 30), st.integers(0, 30))
def test_rounding_that_grows_until_the_curves_are_apart_is_never_called_different(
    seed: int, end: float, per_step: float, differing: int
) -> None:
    # What correct runs did that came apart: 30 % in single steps, 3 % of predictions (tolerance.py, test_tolerance.py).
    rows = drifting(ROWS, end, per_step, seed)
    base = make_run("base", ROWS, predictions=LABELS, facts=TEST)
    facts = {"test": {"rows": 1000, "loss": 0.12, "accuracy": 0.965}}
    verdict = compare(base, make_run("run", rows, ranks=3, predictions=other_labels(differing), facts=facts))
    apart = verdict.figures["largest_deviation"] > 1e-3
    # Together, one percent of predictions may differ, and the test loss cannot be a fifth higher.
    assert verdict.verdict == ("float noise" if apart else "different")


def test_runs_that_drift_apart_say_from_which_step_on() -> None:
    verdict = judged(drifting(ROWS, 0.2))
    assert verdict.verdict == "float noise"
    assert verdict.figures["apart_from_step"] == 8
    assert "step 0 (epoch 1) agrees to" in verdict.reasons[0]
    assert "starts equal, drifts apart from step 8 (epoch 1) on" in verdict.reasons[0]


@given(st.integers(2, 16), st.sampled_from(["missing", "twice"]), st.floats(0, 1e-6))
def test_a_gradient_off_by_the_ranks_is_different_and_has_its_name(ranks: int, fault: str, noise: float) -> None:
    factor = ranks if fault == "missing" else 1 / ranks
    verdict = judged(with_noise(scaled(ROWS, factor), noise), ranks=ranks)
    assert verdict.verdict == "different"
    (cause,) = verdict.causes
    assert cause.startswith("mean is missing" if fault == "missing" else "mean is taken twice")
    assert "step 0 (epoch 1): the loss is equal, the gradient is not" in verdict.reasons[0]
    assert verdict.figures["first_step"]["gradient_norm_ratio"] == pytest.approx(factor, rel=1e-5)


def test_the_fault_is_named_though_all_that_follows_the_first_step_is_another_training() -> None:
    rows = changed(scaled(ROWS, 4), lambda step, name, value: value if step == 0 else min(value * 1.7, 9.0))
    verdict = judged(rows, ranks=4)
    assert verdict.causes[0].startswith("mean is missing: gradients are added across 4 ranks")
    assert len(verdict.reasons) == 2


class Watched(dict[str, Any]):
    """Settings that cannot be asked for the injected fault."""

    def __getitem__(self, key: str) -> Any:
        assert key != "inject"
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        assert key != "inject"
        return super().get(key, default)


@pytest.mark.parametrize("mark", ["sum-without-mean", "mean-twice", None])
def test_the_mark_of_an_injected_fault_is_never_read(mark: str | None) -> None:
    def watched(run: Run) -> Run:
        config = Watched({**run.config, "inject": mark})
        return replace(run, config=config, manifest=Watched({**run.manifest, "config": config}))

    fault = make_run("run", scaled(ROWS, 2), ranks=2, predictions=LABELS)
    verdict = compare(watched(BASE), watched(fault))
    assert verdict.to_dict() == compare(BASE, fault).to_dict()
    assert compare(watched(BASE), watched(make_run("run", ROWS, ranks=2, predictions=LABELS))).verdict == "same"


def test_without_its_mark_in_any_file_the_fault_is_named_all_the_same(tmp_path: Path) -> None:
    base = write_run(tmp_path, "base", ROWS)
    marked = write_run(tmp_path, "marked", scaled(ROWS, 2), ranks=2, settings={"inject": "sum-without-mean"})
    manifest = json.loads((marked / "run.json").read_text())
    del manifest["config"]["inject"]
    bare = write_run(tmp_path, "bare", scaled(ROWS, 2), ranks=2)
    (bare / "run.json").write_text(json.dumps(manifest))
    run_compare(base, [marked, bare], tmp_path / "verdicts.json", as_json=True)
    first, second = json.loads((tmp_path / "verdicts.json").read_text())["comparisons"]
    assert second["causes"] == [cause.replace("marked", "bare") for cause in first["causes"]]
    assert second["causes"][0].startswith("mean is missing")


def test_another_experiment_is_different_by_its_settings_alone() -> None:
    verdict = judged(ROWS, settings={"seed": 2})
    assert verdict.verdict == "different"
    assert verdict.reasons == ("not the same experiment: --seed is 1 in the baseline and 2 in the run",)
    assert verdict.causes == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: replace(row, samples=row.samples - 1), "step 0 (epoch 1): samples is 50 in the baseline, 49"),
        (
            lambda row: replace(row, learning_rate=2e-3),
            "step 0 (epoch 1): learning_rate is 0.001 in the baseline, 0.002",
        ),
        (
            lambda row: replace(row, epoch=1) if row.step == 12 else row,
            "step 12 (epoch 2): epoch is 2 in the baseline, 1",
        ),
    ],
)
def test_other_batches_or_rates_are_named_with_the_step(change: Any, words: str) -> None:
    verdict = judged([change(row) for row in ROWS])
    assert verdict.verdict == "different"
    assert verdict.reasons[0].startswith(words)


def test_a_rate_multiplied_in_another_order_is_no_other_rate() -> None:
    assert judged([replace(row, learning_rate=row.learning_rate * (1 + 1e-15)) for row in ROWS]).verdict == "same"


def test_another_loss_at_the_start_means_other_weights_rows_or_masks() -> None:
    verdict = judged(changed(ROWS, lambda step, name, value: value * (1.001 if name == "train_loss" else 1)))
    assert verdict.verdict == "different"
    assert "step 0 (epoch 1) differs already" in verdict.reasons[0]
    assert "other weights, rows or masks at the start" in verdict.reasons[1]


@pytest.mark.parametrize("step", [1, 2, 5, STEPS])
def test_a_leap_after_an_equal_start_is_told_with_its_step(step: int) -> None:
    rows = changed(ROWS, lambda at, name, value: value * (1 if at < step or "accuracy" in name else 1.6))
    verdict = judged(rows)
    assert verdict.verdict == "different"
    epoch = 1 + step // STEPS
    assert f"starts equal (to 0e+00), leaps apart at step {step} (epoch {epoch})" in verdict.reasons[0]
    assert verdict.causes == ()


@pytest.mark.parametrize(
    ("facts", "predictions", "words"),
    [
        ({"test": {"rows": 1000, "loss": 0.1, "accuracy": 0.80}}, LABELS, "final test accuracy 97.00% against 80.00%"),
        ({"test": {"rows": 1000, "loss": 0.9, "accuracy": 0.97}}, LABELS, "final test loss 0.1 against 0.9"),
        (
            TEST,
            other_labels(100),
            "900 of 1,000 predictions agree (90.00%); float noise explains 60 that differ, not 100",
        ),
    ],
)
def test_an_end_that_is_too_far_off_is_different_though_every_step_is_explained(
    facts: Mapping[str, Any], predictions: list[int], words: str
) -> None:
    base = make_run("base", ROWS, predictions=LABELS, facts=TEST)
    verdict = compare(base, make_run("run", drifting(ROWS, 0.05), predictions=predictions, facts=facts))
    assert verdict.verdict == "different"
    assert "starts equal, drifts apart from step" in verdict.reasons[0]
    assert words in text_of(verdict)


def test_a_final_training_loss_of_another_training_is_different() -> None:
    # Ten times the loss at the end, reached by no leap: 20 % more a step from step 14 on.
    rows = changed(ROWS, lambda step, name, value: value * (1.2 ** max(0, step - 14) if name == "train_loss" else 1))
    verdict = judged(rows)
    assert verdict.verdict == "different"
    assert "drifts apart from step" in verdict.reasons[0]
    assert "final training loss" in text_of(verdict)


def test_eleven_of_a_thousand_predictions_are_too_many_while_the_curves_are_together() -> None:
    assert judged(with_noise(ROWS, 1e-7), predictions=other_labels(10)).verdict == "float noise"
    verdict = judged(with_noise(ROWS, 1e-7), predictions=other_labels(11))
    assert verdict.verdict == "different"
    assert "989 of 1,000 predictions agree (98.90%); float noise explains 10 that differ, not 11" in text_of(verdict)


@pytest.mark.parametrize(("rows", "allowed"), [(1, 1), (20, 1), (100, 1), (200, 2)])
def test_one_row_of_a_small_test_set_may_sit_on_a_tie(rows: int, allowed: int) -> None:
    base = make_run("base", ROWS, predictions=LABELS[:rows])
    for differing, verdict in ((allowed, "float noise"), (allowed + 1, "different")):
        if differing <= rows:
            assert compare(base, make_run("run", ROWS, predictions=other_labels(differing)[:rows])).verdict == verdict


def test_predictions_of_other_rows_do_not_agree() -> None:
    verdict = judged(ROWS, predictions=LABELS[:-1])
    assert verdict.verdict == "different"
    assert "predictions are of other rows: 1,000 in the baseline, 999 in the run" in text_of(verdict)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"predictions": None}, "not both runs have a predictions.csv"),
        ({"settings": {"test": "data/more.csv"}}, "of other rows (test.csv in the baseline, more.csv in the run)"),
        ({"settings": {"test": None}, "predictions": None}, "(test.csv in the baseline, no test file in the run)"),
    ],
)
def test_predictions_that_cannot_be_compared_are_said_not_to_be(others: dict[str, Any], words: str) -> None:
    verdict = judged(ROWS, **others)
    assert verdict.verdict == "same"
    assert words in text_of(verdict)
    assert verdict.figures["predictions"]["agreement"] is None


def test_the_same_test_file_elsewhere_holds_the_same_rows() -> None:
    assert judged(ROWS, settings={"test": "/scratch/test.csv"}).figures["predictions"]["agreement"] == 1.0


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_a_run_of_few_steps_is_judged_by_them(steps: int, noise: float) -> None:
    rows = ROWS[:steps]
    verdict = compare(make_run("base", rows), make_run("run", with_noise(rows, noise)))
    assert verdict.verdict == ("float noise" if noise else "same")
    fault = compare(make_run("base", rows), make_run("run", scaled(rows, 2), ranks=2))
    assert (fault.verdict, len(fault.causes)) == ("different", 1)


def test_a_run_of_no_step_is_judged_by_its_predictions() -> None:
    base = make_run("base", [], predictions=LABELS)
    assert compare(base, make_run("run", [], predictions=LABELS)).verdict == "same"
    assert compare(base, make_run("run", [], predictions=other_labels(5))).verdict == "float noise"
    verdict = compare(base, make_run("run", [], predictions=other_labels(500)))
    assert verdict.verdict == "different"
    assert verdict.reasons[0] == "no step was recorded: only predictions are compared"


def test_runs_with_nothing_in_common_cannot_be_compared() -> None:
    with pytest.raises(ResultsError, match="nothing to compare: no step in common with results/base, no prediction"):
        compare(make_run("base", []), make_run("run", []))


def test_a_loss_of_nearly_nothing_does_not_make_rounding_a_difference() -> None:
    # Losses of 1e-9 and gradients to match: the ratio of two roundings is anything.
    base = curve(4)
    small = changed(base, lambda step, name, value: value * (1e-9 if step >= 2 * STEPS and "acc" not in name else 1))
    other = changed(small, lambda step, name, value: value * (3 if step >= 2 * STEPS and "acc" not in name else 1))
    assert compare(make_run("base", small), make_run("run", other)).verdict == "float noise"


def test_a_run_that_was_resumed_is_judged_over_the_steps_in_common() -> None:
    later = [row for row in drifting(ROWS, 0.1) if row.epoch > 1]
    verdict = judged(later)
    assert verdict.verdict == "float noise"
    assert verdict.figures["steps"] == 2 * STEPS
    assert "in common are 24 steps from step 12 (epoch 2) on" in verdict.reasons[0]
    assert judged([row for row in ROWS if row.epoch > 1]).verdict == "same"


def test_runs_resumed_at_the_same_step_are_held_to_it_as_to_a_first_one() -> None:
    later = [row for row in ROWS if row.epoch > 1]
    verdict = compare(make_run("base", later), make_run("run", scaled(later, 3), ranks=3))
    assert verdict.causes[0].startswith("mean is missing")


def test_a_run_that_ends_earlier_than_the_baseline_is_different() -> None:
    verdict = judged(ROWS[:-1])
    assert verdict.reasons[0] == "the last step is 35 in the baseline, 34 in the run"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5.0, 5.0, 1e300])
@pytest.mark.parametrize("name", ["train_loss", "train_accuracy", "validation_loss", "validation_accuracy"])
def test_figures_that_make_no_sense_are_different_and_raise_nothing(name: str, value: float) -> None:
    rows = changed(drifting(ROWS, 0.1), lambda step, column, old: value if column == name and step > 30 else old)
    assert judged(rows).verdict == "different"
    assert compare(make_run("base", rows), make_run("run", rows)).verdict == "same"
    assert compare(make_run("base", rows), make_run("run", ROWS)).verdict == "different"


def test_figures_are_plain_data_without_nan() -> None:
    rows = changed(ROWS, lambda step, name, value: float("nan") if name == "gradient_norm" else value)
    document = json.dumps(compare(BASE, make_run("run", rows)).to_dict(), allow_nan=False)
    assert json.loads(document)["figures"]["first_step"]["gradient_norm_ratio"] is None


@pytest.mark.parametrize(("factor", "status"), [(1.0, 0), (1 + 1e-8, 0), (2.0, 1)])
def test_the_exit_status_is_1_if_any_run_is_different(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], factor: float, status: int
) -> None:
    base = write_run(tmp_path, "base", ROWS)
    same = write_run(tmp_path, "same", ROWS)
    run = write_run(tmp_path, "run", scaled(ROWS, factor), ranks=2)
    assert run_compare(base, [same, run]) == status
    assert capsys.readouterr().out.startswith("VERDICT same: same against base\n")


def test_a_run_that_cannot_be_read_is_refused_before_anything_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_run(tmp_path, "base", ROWS)
    with pytest.raises(ResultsError, match="none"):
        run_compare(base, [base, tmp_path / "none"], tmp_path / "verdicts.json")
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "verdicts.json").exists()
