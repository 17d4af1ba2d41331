"""What the papers say of schedules: the share of time in which a rank waits, and how many micro-batches it holds.

A backward takes as long as two forwards, messages take no time; p stages, m micro-batches (at least p, for interleaved
schedules a multiple), v segments a stage. The papers are named in hpcnn/parallel/schedules.py.
"""

from __future__ import annotations

from fractions import Fraction

CHUNKS = {"interleaved": 2}
"""Segments a stage; 1 where none are given."""


def bubble(schedule: str, stages: int, micro_batches: int) -> float:
    """Share of a step in which a rank does not compute."""
    others = stages - 1
    work = {
        "gpipe": micro_batches,
        "1f1b": micro_batches,
        "interleaved": CHUNKS["interleaved"] * micro_batches,
        "zero-bubble": 3 * micro_batches,
    }
    if schedule == "layer-by-layer":
        return float(Fraction(others, stages))
    return float(Fraction(others, work[schedule] + others))


def stored(schedule: str, stages: int, micro_batches: int) -> list[int]:
    """The most micro-batches (of interleaved: segments of them) that wait for their backward at once, by stage."""
    chunks = CHUNKS.get(schedule, 1)
    most = {
        "layer-by-layer": lambda stage: 1,
        "gpipe": lambda stage: micro_batches,
        "1f1b": lambda stage: stages - stage,
        "interleaved": lambda stage: 2 * (stages - 1 - stage) + (chunks - 1) * stages + 1,
        "zero-bubble": lambda stage: stages,
    }
    return [min(most[schedule](stage), chunks * micro_batches) for stage in range(stages)]


def step_seconds(schedule: str, stages: int, micro_batches: int, work: float) -> float:
    """Of a step, where a micro-batch is `work` seconds on every stage, there and back."""
    return micro_batches * work / (1 - bubble(schedule, stages, micro_batches))
