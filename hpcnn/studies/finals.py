"""What two runs ended at: losses, accuracies and predictions, each with how far apart it may be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from hpcnn.studies.reading import Run, epochs_of
from hpcnn.studies.tolerance import (
    HABIT_ACCURACY,
    HABIT_LOSS,
    allowed_accuracy,
    allowed_disagreement,
    allowed_loss,
)

HABIT = f"loss {HABIT_LOSS:.0%}, accuracy {100 * HABIT_ACCURACY:g} points"

UNKNOWN_ERROR = 0.1
"""Share of test rows told wrong that is assumed where neither labels nor validation rows tell it."""


@dataclass(frozen=True)
class Final:
    """One figure of both runs over `rows` rows; float noise may take them `allowed` apart, in the figure's own unit.

    `repeats`: of the baseline, by which that was measured (noise.py); 0 where it was derived."""

    name: str
    baseline: float
    run: float
    rows: int
    allowed: float
    repeats: int = 0

    @property
    def apart(self) -> float:
        """Absolute difference; 0 where neither is finite, infinite where one is."""
        if math.isfinite(self.baseline) and math.isfinite(self.run):
            return abs(self.run - self.baseline)
        return 0.0 if math.isfinite(self.baseline) == math.isfinite(self.run) else math.inf

    @property
    def holds(self) -> bool:
        return self.apart == 0 or (math.isfinite(self.apart) and self.apart <= self.allowed * (1 + 1e-9))

    @property
    def usual(self) -> bool:
        """Whether the habit of the field holds as it stands."""
        return self.apart <= (HABIT_ACCURACY if self._share else HABIT_LOSS * abs(self.baseline)) * (1 + 1e-9)

    @property
    def values(self) -> str:
        """For people: both values."""
        form = ".2%" if self._share else ".4g"
        return f"{self.name} {self.baseline:{form}} against {self.run:{form}}"

    @property
    def words(self) -> str:
        """For people: both values, how far apart they are, and what that is to be held against."""
        if self._share:
            apart, allowed = f"{100 * self.apart:.2f} points", f"{100 * self.allowed:.2f} points"
        else:
            apart, allowed = f"{self.apart:.2g}", f"{self.allowed:.2g}"
        held = "within" if self.holds else "more than"
        place = f"{held} the {allowed} that {_explained_by(self.repeats)}"
        habit = "" if self.usual else f" (more than the usual {HABIT})"
        return f"final {self.values}: {apart} apart over {self.rows:,} rows{habit}, {place}"

    @property
    def _share(self) -> bool:
        return self.name.endswith("accuracy")

    def to_dict(self) -> dict[str, Any]:
        return {
            "baseline": self.baseline, "run": self.run, "rows": self.rows, "apart": self.apart, "allowed": self.allowed
        }  # fmt: skip


@dataclass(frozen=True)
class Agreement:
    """Predictions of both runs on the same rows. `rows` is 0 and `words` says why where they cannot be compared."""

    rows: int
    differing: int
    allowed: int
    words: str

    @property
    def holds(self) -> bool:
        return self.differing <= self.allowed

    def within(self, allowed: int, repeats: int) -> Agreement:
        """The same, where `repeats` of the baseline showed how many may differ."""
        return _judged(self.rows, self.differing, allowed, repeats)

    def to_dict(self) -> dict[str, Any]:
        agreement = None if not self.rows else 1 - self.differing / self.rows
        return {"rows": self.rows, "differing": self.differing, "allowed": self.allowed, "agreement": agreement}


def final_figures(baseline: Run, run: Run, together: bool) -> tuple[Final, ...]:
    """Loss and accuracy of the last epoch's steps, of the validation rows and of the test file, where both have them.

    `together`: the curves never came apart, so the habit of the field holds without any allowance.
    """
    start = abs(float(baseline.losses["train_loss"][0])) if baseline.steps else 0.0
    found = []
    for name, rows, losses, accuracies in _pairs(baseline, run):
        found.append(Final(f"{name} loss", *losses, rows, allowed_loss(losses, rows, start, together)))
        found.append(Final(f"{name} accuracy", *accuracies, rows, allowed_accuracy(accuracies, rows, together)))
    return tuple(found)


def _pairs(baseline: Run, run: Run) -> Iterator[tuple[str, int, tuple[float, float], tuple[float, float]]]:
    """(what, rows, both losses, both accuracies)."""
    ours, theirs = epochs_of(baseline), epochs_of(run)
    if ours and theirs:
        left, right = ours[-1], theirs[-1]
        yield "training", left.rows, (left.loss, right.loss), (left.accuracy, right.accuracy)
        losses = left.validation_loss, right.validation_loss
        if not all(map(math.isnan, losses)):
            rows = int(baseline.manifest.get("validation_rows") or 0)
            yield "validation", rows, losses, (left.validation_accuracy, right.validation_accuracy)
    if not _other_test(baseline, run):
        tests = baseline.tested, run.tested
        if all(isinstance(test.get(name), (int, float)) for test in tests for name in ("rows", "loss", "accuracy")):
            left_test, right_test = tests
            losses = float(left_test["loss"]), float(right_test["loss"])
            yield "test", int(left_test["rows"]), losses, (float(left_test["accuracy"]), float(right_test["accuracy"]))


def _other_test(baseline: Run, run: Run) -> str:
    """Why the two runs' predictions are not of the same rows; empty where they are."""
    files = [PurePath(str(one.config.get("test") or "")).name for one in (baseline, run)]
    if files[0] != files[1]:
        return f"of other rows ({files[0] or 'no test file'} in the baseline, {files[1] or 'no test file'} in the run)"
    return ""


def agreement(baseline: Run, run: Run, together: bool) -> Agreement:
    """How many predictions differ. Files of the same name but with other rows do not agree in any."""
    ours, theirs = baseline.predictions, run.predictions
    other = _other_test(baseline, run)
    if other or ours is None or theirs is None:
        return Agreement(0, 0, 0, f"predictions are not compared: {other or 'not both runs have a predictions.csv'}")
    if ours.keys() != theirs.keys():
        rows = max(len(ours), len(theirs))
        return Agreement(
            rows, rows, 0, f"predictions are of other rows: {len(ours):,} in the baseline, {len(theirs):,} in the run"
        )
    rows, differing = len(ours), sum(label != theirs[row] for row, label in ours.items())
    if not rows:
        return Agreement(0, 0, 0, "predictions are not compared: there are none")
    errors, known = _errors(baseline, run)
    return _judged(rows, differing, allowed_disagreement(rows, errors, known, together))


def _judged(rows: int, differing: int, allowed: int, repeats: int = 0) -> Agreement:
    words = f"{rows - differing:,} of {rows:,} predictions agree ({1 - differing / rows:.2%})"
    if differing > allowed:
        source = f"{repeats} repeats of the baseline explain" if repeats else "float noise explains"
        words += f"; {source} {allowed:,} that differ, not {differing:,}"
    return Agreement(rows, differing, allowed, words)


def _explained_by(repeats: int) -> str:
    return f"{repeats} repeats of the baseline show" if repeats else "rounding explains"


def _errors(baseline: Run, run: Run) -> tuple[tuple[float, float], bool]:
    """Shares of rows told wrong by each run, and whether of the test rows themselves."""
    figures = {name: accuracies for name, _, _, accuracies in _pairs(baseline, run)}
    for name in ("test", "validation"):
        if name in figures:
            left, right = figures[name]
            return (1 - left, 1 - right), name == "test"
    left, right = figures.get("training", (1.0, 1.0))
    return (max(1 - left, UNKNOWN_ERROR), max(1 - right, UNKNOWN_ERROR)), False
