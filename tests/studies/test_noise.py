"""Bands measured from repeats of a baseline: as wide as these scatter, never less than the habit of the field."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.cli import main
from hpcnn.errors import ResultsError
from hpcnn.studies.compare import compare, noise_band
from hpcnn.studies.noise import measure, student_t
from hpcnn.studies.reading import Run
from tests.studies.made_runs import curve, drifting, make_run, write_run
from tests.studies.trained import trained, write_files

ROWS = curve()
LABELS = [row % 10 for row in range(1000)]


def run_of(name: str, seed: int, loss: float, accuracy: float = 0.97, differing: int = 5) -> Run:
    """A run that drifted from the baseline as rounding takes one, and ended there on the test file."""
    labels = [(label + 1 + seed % 9) % 10 if row < differing else label for row, label in enumerate(LABELS)]
    facts = {"test": {"rows": 1000, "loss": loss, "accuracy": accuracy}}
    return make_run(name, drifting(ROWS, 0.05, seed=seed), predictions=labels, facts=facts)


BASE = run_of("base", 1, 0.300)
QUIET = [run_of(f"repeat{place}", 2 + place, loss) for place, loss in enumerate((0.301, 0.299, 0.302, 0.298))]
LOUD = [run_of(f"repeat{place}", 2 + place, loss) for place, loss in enumerate((0.33, 0.27, 0.31, 0.29))]


def test_a_narrow_band_calls_different_what_no_repeat_comes_near() -> None:
    run = run_of("run", 9, 0.34)
    assert compare(BASE, run).verdict == "float noise"  # derived for any network: 0.22 over 1,000 rows
    verdict = compare(BASE, run, noise_band(BASE, QUIET))
    assert verdict.verdict == "different"
    words = "final test loss 0.3 against 0.34: 0.04 apart over 1,000 rows (more than the usual loss 1%"
    assert any(
        reason.startswith(words) and "that 4 repeats of the baseline show" in reason for reason in verdict.reasons
    )


def test_a_wide_band_holds_what_is_apart_as_repeats_are() -> None:
    verdict = compare(BASE, run_of("run", 9, 0.36), noise_band(BASE, LOUD))
    assert verdict.verdict == "float noise"
    allowed = verdict.figures["finals"]["test loss"]["allowed"]
    assert allowed == pytest.approx(8.610 * math.sqrt(2) * float(np.std([0.30, 0.33, 0.27, 0.31, 0.29], ddof=1)))


def test_repeats_that_end_alike_leave_the_habit() -> None:
    band = noise_band(BASE, [run_of(f"repeat{place}", 2 + place, 0.3) for place in range(3)])
    assert band.finals["test loss"] == 0.0
    assert compare(BASE, run_of("run", 9, 0.3029), band).verdict == "float noise"
    assert compare(BASE, run_of("run", 9, 0.3035), band).verdict == "different"


def test_predictions_may_differ_as_those_of_repeats_do() -> None:
    band = noise_band(BASE, QUIET)
    assert band.disagreement is not None
    few, many = (run_of("run", 9, 0.3, differing=count) for count in (15, 40))
    assert compare(BASE, few, band).verdict == "float noise"
    assert compare(BASE, many).verdict == "float noise"
    verdict = compare(BASE, many, band)
    assert "4 repeats of the baseline explain" in "\n".join(verdict.reasons)


def test_while_curves_are_together_the_habit_holds_as_without_repeats() -> None:
    close = replace(BASE, path=Path("results/close"), predictions={**(BASE.predictions or {}), "1": "8"})
    assert compare(BASE, close, noise_band(BASE, LOUD)).to_dict() == compare(BASE, close).to_dict()


def test_draws_from_the_baselines_own_scatter_are_hardly_ever_called_different() -> None:
    random = np.random.default_rng(4)
    called = 0
    for trial in range(50):
        losses = 0.3 + 0.01 * random.standard_normal(6)
        base, *others = (run_of(f"r{place}", 1 + 7 * trial + place, float(loss)) for place, loss in enumerate(losses))
        called += compare(base, others[-1], noise_band(base, others[:-1])).verdict == "different"
    assert called <= 1


@pytest.mark.parametrize(
    ("repeats", "words"),
    [
        (QUIET[:2], "--noise takes at least 3 repeats of the baseline, not 2: train more"),
        ([*QUIET[:3], QUIET[0]], "has the very losses of results/repeat0, and measures no noise: repeat with other"),
        ([*QUIET[:3], BASE], "has the very losses of results/base, and measures no noise"),
    ],
)
def test_repeats_that_measure_nothing_are_refused(repeats: list[Run], words: str) -> None:
    with pytest.raises(ResultsError) as error:
        noise_band(BASE, repeats)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_that_is_another_experiment_is_no_repeat() -> None:
    other = make_run("other", ROWS, settings={"seed": 2})
    with pytest.raises(ResultsError, match="results/other: is no repeat of results/base for --noise: not the same exp"):
        noise_band(BASE, [*QUIET, other])


def test_repeats_without_predictions_leave_what_is_derived() -> None:
    band = measure(BASE, [replace(repeat, predictions=None) for repeat in QUIET])
    assert band.disagreement is None
    run = run_of("run", 9, 0.3, differing=40)
    assert compare(BASE, run, band).figures["predictions"] == compare(BASE, run).figures["predictions"]


@pytest.mark.needs("scipy")
def test_students_t_is_scipys_and_never_less() -> None:
    from scipy import stats

    for freedom in (3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 60):
        assert student_t(freedom) == pytest.approx(stats.t.ppf(0.9995, freedom), abs=6e-4)
    for freedom in (11, 14, 25, 59, 500):
        assert student_t(freedom) > stats.t.ppf(0.9995, freedom)


def test_the_verb_takes_repeats_behind_the_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("base", "run", "one", "two", "three")
    base, run, *repeats = (
        str(write_run(tmp_path, name, drifting(ROWS, 0.05, seed=seed))) for seed, name in enumerate(names, 1)
    )
    assert main(["compare", base, run, "--noise", *repeats]) == 0
    assert capsys.readouterr().out.startswith("VERDICT float noise: run against base\n")
    assert main(["compare", base, run, "--noise", *repeats[:2]]) == 1
    assert "--noise takes at least 3 repeats" in capsys.readouterr().err


@pytest.mark.needs("torch")
def test_micro_batches_permute_the_sums_of_real_repeats(tmp_path: Path) -> None:
    files: dict[str, Any] = {
        **write_files(tmp_path), "backend": "torch", "optimizer": "adam", "learning_rate": 0.02, "epochs": 6
    }  # fmt: skip
    folders = trained(1, [{**files, "micro_batches": pieces} for pieces in (1, 2, 3, 4, 5)])
    base, *repeats, run = map(str, folders)
    assert main(["compare", base, run, "--noise", *repeats]) == 0
