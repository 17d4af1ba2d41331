"""Are two runs the same training? Same to the bit, apart by float noise, or different, and if so by what.

What the ranks recorded of rows, masks, weights and sums (rows.csv, replicas.csv) tells most faults by itself. Else the
first step's loss and gradient norm are the evidence that no learning rate can blur, then the next two steps. What comes
later is judged as curves: rounding grows until two correct runs are two networks of one kind, and then only what they
ended at can be compared, as far apart as is derived, or was measured by repeats of the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn.errors import ResultsError
from hpcnn.studies.experiment import experiment_differences
from hpcnn.studies.finals import HABIT, agreement, final_figures
from hpcnn.studies.noise import Band, measure
from hpcnn.studies.rates import SAME_RATE, batch_causes, rate_causes
from hpcnn.studies.reading import Run, read_run
from hpcnn.studies.seen import row_differences
from hpcnn.studies.tolerance import (
    FIRST_STEP,
    TOGETHER,
    first_unexplained,
    gradient_deviation,
    loss_deviation,
)
from hpcnn.studies.verdict import Outcome, Verdict
from hpcnn.studies.why import seen_causes, step_causes

_COLUMNS = ("train_loss", "train_accuracy", "gradient_norm", "validation_loss", "validation_accuracy")


def run_compare(
    baseline: Path,
    runs: Sequence[Path],
    json_path: Path | None = None,
    *,
    as_json: bool = False,
    noise: Sequence[Path] = (),
) -> int:
    """The verb: prints the verdicts, as text or as JSON, and writes them to `json_path` where one is given.

    `noise`: repeats of the baseline (noise.py). Returns the exit status: 0 if no run is different, else 1. Raises
    ResultsError where a run cannot be read.
    """
    from hpcnn.records.files import write_json
    from hpcnn.studies.report import json_text, render, verdicts_to_dict

    reference = read_run(baseline)
    band = noise_band(reference, [read_run(repeat) for repeat in noise]) if noise else None
    verdicts = [compare(reference, read_run(run), band) for run in runs]
    print(json_text(verdicts) if as_json else render(verdicts))
    if json_path is not None:
        write_json(json_path, verdicts_to_dict(verdicts))
    return int(any(verdict.verdict == "different" for verdict in verdicts))


def noise_band(baseline: Run, repeats: Sequence[Run]) -> Band:
    """The band that `repeats` of the baseline measure. ResultsError where one of them is none, or they are too few."""
    for repeat in repeats:
        found = compare(baseline, repeat)
        if found.verdict == "different":
            raise ResultsError(f"{repeat.path}: is no repeat of {baseline.path} for --noise: {found.reasons[0]}")
    return measure(baseline, repeats)


def compare(baseline: Run, run: Run, band: Band | None = None) -> Verdict:
    """The verdict of `run` against `baseline`, from what both recorded and from nothing that says what was meant.

    `band`: how far apart repeats of the baseline ended.

    Raises ResultsError where there is nothing to compare: no step and no prediction in common.
    """
    differences = experiment_differences(baseline, run)
    if differences:
        causes = batch_causes(baseline, run)
        return Verdict(baseline=baseline, run=run, verdict="different", reasons=differences, causes=causes)
    return _Comparison(baseline, run, band).verdict()


class _Comparison:
    """Two runs of one experiment, over the steps that both recorded (all, unless one was resumed)."""

    def __init__(self, baseline: Run, run: Run, band: Band | None) -> None:
        # A run that was resumed may have been apart already where the two meet.
        self._one_start = baseline.first_step == run.first_step
        self._ends = baseline.last_step, run.last_step
        self._steps, left, right = np.intersect1d(baseline.losses["step"], run.losses["step"], return_indices=True)
        self._left = {name: column[left] for name, column in baseline.losses.items()}
        self._right = {name: column[right] for name, column in run.losses.items()}
        self._baseline, self._run = replace(baseline, losses=self._left), replace(run, losses=self._right)
        self._deviation = np.maximum(
            loss_deviation(self._left["train_loss"], self._right["train_loss"]),
            gradient_deviation(self._left["gradient_norm"], self._right["gradient_norm"]),
        )
        self._together = bool((self._deviation <= TOGETHER).all())
        self._finals = final_figures(self._baseline, self._run, self._together)
        self._agreement = agreement(self._baseline, self._run, self._together)
        if band is not None and not self._together:
            habits = final_figures(self._baseline, self._run, together=True)
            self._finals = tuple(band.of_final(*pair) for pair in zip(self._finals, habits, strict=True))
            self._agreement = band.of_agreement(self._agreement, agreement(self._baseline, self._run, together=True))
        if not len(self._steps) and not self._agreement.rows:
            raise ResultsError(f"{run.path}: nothing to compare: no step in common with {baseline.path}, no prediction")

    def verdict(self) -> Verdict:
        outcome: Outcome = "different"
        causes: tuple[str, ...] = ()
        if reasons := self._other_steps():
            causes = rate_causes(self._baseline, self._run)
        elif self._same():
            outcome, reasons = "same", self._sameness()
        else:
            seen = row_differences(self._baseline, self._run)
            causes, reasons = seen_causes(self._baseline, self._run, seen), self._faults()
            if reasons and not seen and not causes:
                causes = step_causes(
                    self._baseline, self._run, one_start=self._one_start, differs_at_first=self._unexplained() == 0
                )
            reasons += [one.words for one in seen if not one.is_cause]
            if causes and not reasons:
                reasons = self._course()
            if not reasons:
                outcome, reasons = "float noise", self._noise()
        return Verdict(
            baseline=self._baseline,
            run=self._run,
            verdict=outcome,
            reasons=tuple(reasons),
            causes=causes,
            figures=self._figures(),
        )

    def _other_steps(self) -> list[str]:
        """How the steps themselves differ: how many, of which rows, at which rate; empty where they do not."""
        if self._ends[0] != self._ends[1]:
            return [f"the last step is {self._ends[0]} in the baseline, {self._ends[1]} in the run"]
        for name, allowed in (("samples", 0.0), ("epoch", 0.0), ("learning_rate", SAME_RATE)):
            left, right = self._left[name], self._right[name]
            other = np.abs(left - right) > allowed * np.abs(left)
            if other.any():
                place = int(other.argmax())
                values = f"{left[place]:.10g} in the baseline, {right[place]:.10g} in the run"
                return [f"{self._step(place)}: {name} is {values}"]
        return []

    def _same(self) -> bool:
        columns = all(np.array_equal(self._left[name], self._right[name], equal_nan=True) for name in _COLUMNS)
        return columns and not self._agreement.differing and all(final.apart == 0 for final in self._finals)

    def _sameness(self) -> list[str]:
        return [f"every figure of {_count(len(self._steps), 'step')} is equal to the bit", self._agreement.words]

    def _faults(self) -> list[str]:
        """Why this is not float noise; empty where it is."""
        place = self._unexplained()
        if place is not None:
            return self._departure(place)
        lines = [final.words for final in self._finals if not final.holds]
        if not self._agreement.holds:
            lines.append(self._agreement.words)
        return [*self._course(), *lines] if lines else []

    def _unexplained(self) -> int | None:
        """Place of the first step that float noise cannot explain."""
        return first_unexplained(self._left["train_loss"], self._deviation) if self._one_start else None

    def _departure(self, place: int) -> list[str]:
        values = [
            f"{words} {left[place]:.8g} against {right[place]:.8g}"
            for words, left, right in (
                ("loss", self._left["train_loss"], self._right["train_loss"]),
                ("gradient norm", self._left["gradient_norm"], self._right["gradient_norm"]),
            )
        ]
        here, figures = self._step(place), ", ".join(values)
        if place > 0:
            before = float(self._deviation[:place].max())
            return [
                f"starts equal (to {before:.0e}), leaps apart at {here}: {figures}",
                "float noise does not grow so fast: the update before, or the rows, masks or rate of this step, differ",
            ]
        loss = float(loss_deviation(self._left["train_loss"][:1], self._right["train_loss"][:1])[0])
        if loss > FIRST_STEP:
            apart = f"the loss is {loss:.1e} apart, float32 explains {FIRST_STEP:g}"
            return [f"{here} differs already: {figures}", f"{apart}: other weights, rows or masks at the start"]
        return [
            f"{here}: the loss is equal, the gradient is not: {figures}",
            f"run / baseline {self._ratio():.4g}: same rows and weights, so what differs is backward or the reduction",
        ]

    def _course(self) -> list[str]:
        """How the steps went, for runs that start equal."""
        if not len(self._steps):
            return ["no step was recorded: only predictions are compared"]
        largest = float(self._deviation.max())
        if not self._one_start:
            start = f"in common are {_count(len(self._steps), 'step')} from {self._step(0)} on"
        else:
            start = f"{self._step(0)} agrees to {self._deviation[0]:.0e} (float32 explains {FIRST_STEP:g})"
        if self._together:
            return [f"{start}; loss and gradient norm stay together to {largest:.0e}"]
        apart = self._step(self._apart_from())
        return [f"{start}; starts equal, drifts apart from {apart} on, step by step as rounding does"]

    def _noise(self) -> list[str]:
        usual = [final.values for final in self._finals if final.usual]
        line = [f"within the habit of the field ({HABIT}): {'; '.join(usual)}"] if usual else []
        beyond = [final.words for final in self._finals if not final.usual]
        return [*self._course(), *line, *beyond, self._agreement.words]

    def _apart_from(self) -> int:
        return int((self._deviation > TOGETHER).argmax())

    def _ratio(self) -> float:
        left, right = self._left["gradient_norm"][0], self._right["gradient_norm"][0]
        return float(right / left) if left else float("nan")

    def _step(self, place: int) -> str:
        return f"step {int(self._steps[place])} (epoch {int(self._left['epoch'][place])})"

    def _figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "steps": len(self._steps),
            "finals": {final.name: final.to_dict() for final in self._finals},
            "predictions": self._agreement.to_dict(),
        }
        if len(self._steps):
            figures["first_step"] = {
                "step": int(self._steps[0]),
                "train_loss": [float(side["train_loss"][0]) for side in (self._left, self._right)],
                "gradient_norm": [float(side["gradient_norm"][0]) for side in (self._left, self._right)],
                "gradient_norm_ratio": self._ratio(),
                "deviation": float(self._deviation[0]),
            }
            figures["largest_deviation"] = float(self._deviation.max())
            figures["apart_from_step"] = None if self._together else int(self._steps[self._apart_from()])
        return figures


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
