"""A small file of real digits whose rows, batches and shards nothing divides."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

ROWS, BATCH = 211, 31
FIVE_STEPS = 4 * BATCH + 2
"""Rows of five steps, whose last has two: with three ranks and more, one has none."""


def write_digits(folder: Path, rows: int = ROWS, *, name: str = "digits.csv", source: str = "train") -> Path:
    """The header and the first `rows` rows of the shipped CSV."""
    with open(REPOSITORY / "data" / f"{source}.csv", encoding="utf-8") as stream:
        lines = [next(stream) for _ in range(rows + 1)]
    path = folder / name
    path.write_text("".join(lines), encoding="utf-8")
    return path
