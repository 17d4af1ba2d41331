"""Is what was made faster still the same training? Each run's verdict against one run of the same experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcnn.errors import ResultsError
from hpcnn.studies.compare import compare
from hpcnn.studies.experiment import experiment_differences
from hpcnn.studies.study_reading import Measured

OUTCOMES = ("same", "float noise", "different", "not comparable")


@dataclass(frozen=True, eq=False)
class Sameness:
    """`verdict`: one of OUTCOMES. `baseline`: None of the run that others are held against, whose verdict is empty."""

    run: Measured
    baseline: Measured | None
    verdict: str = ""
    reason: str = ""
    deviation: float | None = None

    @property
    def experiment(self) -> str:
        """The key of the run that those of one experiment are held against."""
        return (self.baseline or self.run).cell.key

    @property
    def rank(self) -> int:
        """From the best verdict, 0, to the worst."""
        return OUTCOMES.index(self.verdict) if self.verdict else -1


def sameness(measured: Sequence[Measured]) -> dict[str, Sameness]:
    """By the key of the cell. Of the runs of one experiment (the same rows, batches, rates and network, whatever the
    backend and the ranks) the first on the fewest ranks is the baseline."""
    baselines: list[Measured] = []
    found = {}
    for one in sorted(measured, key=lambda one: one.cell.ranks):
        baseline = next((other for other in baselines if not experiment_differences(other.run, one.run)), None)
        if baseline is None:
            baselines.append(one)
            found[one.cell.key] = Sameness(one, None)
        else:
            found[one.cell.key] = _against(baseline, one)
    return found


def _against(baseline: Measured, one: Measured) -> Sameness:
    try:
        verdict = compare(baseline.run, one.run)
    except ResultsError as error:
        return Sameness(one, baseline, "not comparable", str(error).removeprefix(f"{one.run.path}: "))
    reasons = verdict.reasons if verdict.verdict == "different" else verdict.reasons[:1]
    reason = "; ".join(verdict.causes or reasons)
    return Sameness(one, baseline, verdict.verdict, reason, verdict.figures.get("largest_deviation"))


def counted(verdicts: Mapping[str, Sameness], runs: Sequence[Measured]) -> str:
    """`2 same, 1 float noise`, of the runs that have a verdict; empty of none."""
    counts = Counter(verdicts[one.cell.key].verdict for one in runs)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
