"""What a comparison says: the verdict, the reasons for it, and the figures behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpcnn.studies.reading import Run

Outcome = Literal["same", "float noise", "different"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Of `run` against `baseline`. `reasons` and `causes` are lines for people; `figures` is plain data."""

    baseline: Run = field(repr=False)
    run: Run = field(repr=False)
    verdict: Outcome
    reasons: tuple[str, ...]
    causes: tuple[str, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, where a number that is not finite is null."""
        return {
            "verdict": self.verdict,
            "baseline": str(self.baseline.path),
            "run": str(self.run.path),
            "reasons": list(self.reasons),
            "causes": list(self.causes),
            "figures": _plain(self.figures),
        }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
