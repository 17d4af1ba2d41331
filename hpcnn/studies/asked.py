"""What a run was asked to do that changes its results beyond float noise, and is no fault: gradients that are rounded
between ranks, or added by Adasum."""

from __future__ import annotations

from typing import Any

from hpcnn.studies.reading import Run

EXACT, ROUNDED = 1e-5, 1e-2
"""Relative deviation of a sum of gradients: of float32, and of 8 bits (bfloat16) or more; with margins."""


def asked_for(baseline: Run, run: Run) -> tuple[str, ...]:
    """Lines for people; empty where neither run was asked for anything of the kind, or both for the same."""
    words = [_words(one) for one in (baseline, run)]
    if words[0] == words[1]:
        return ()
    return tuple(
        f"asked for, not a fault: {words}, in {one.name}"
        for one, words in zip((baseline, run), words, strict=True)
        if words
    )


def sum_deviation(run: Run) -> float | None:
    """How far a sum of gradients may be from the exact one, relatively; None where it is no sum."""
    words = _words(run)
    return EXACT if not words else None if "Adasum" in words else ROUNDED


def _words(run: Run) -> str:
    reducer = run.manifest.get("reducer")
    if not isinstance(reducer, dict) or not isinstance(options := reducer.get("options"), dict):
        return ""  # nothing was added
    if options.get("op") == "adasum":
        return "gradients are combined by Adasum, which is no sum (--reducer-option op=adasum)"
    return _rounding(options)


def _rounding(options: dict[str, Any]) -> str:
    for name, exact in (("wire", "float32"), ("compression", "none")):
        if options.get(name, exact) != exact:
            return f"gradients are rounded between ranks (--reducer-option {name}={options[name]})"
    return ""
