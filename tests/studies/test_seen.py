"""Faults of rows, labels, masks and scaling, told from rows that were seen; correct runs show none, however they are
laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.data.order import BatchOrder
from hpcnn.data.shards import replica_shards
from hpcnn.records.evidence import SeenRow
from hpcnn.studies.reading import Run
from hpcnn.studies.seen import row_differences
from tests.studies.made_runs import curve, make_run

CURVE = curve(2)
ROWS, SHARDS = 90, 12
LABELS = np.random.default_rng(3).integers(0, 10, ROWS)
ORDER = BatchOrder(ROWS, SHARDS, 20, 0.0, 7)


def seen(replicas: int = 1, stages: int = 1, epochs: Sequence[int] = (1, 2)) -> list[SeenRow]:
    """What ranks of such a grid see of the first batches of `epochs`, by the order that runs have."""
    return [
        row_of(epoch, int(row), shards, replica, stage, stages)
        for epoch in epochs
        for replica in range(replicas)
        for stage in range(stages)
        for shards in [replica_shards(SHARDS, replicas, replica)]
        for row in ORDER.rows(epoch, 0, shards)[: len(shards)]
    ]


def row_of(epoch: int, row: int, shards: range, replica: int, stage: int, stages: int) -> SeenRow:
    held = range(int(ORDER.bounds[shards.start]), int(ORDER.bounds[shards.stop]))
    # Two dropouts, which are the first and the last stage's.
    masks = sum(1000 * epoch + row for place in (0, stages - 1) if place == stage)
    return SeenRow(
        rank=replica * stages + stage, replica=replica, stage=stage, epoch=epoch, row=row, features=f"{row:016x}",
        label=int(LABELS[row]), label_before=label(row - 1, held), label_after=label(row + 1, held),
        mean=None if stage else row / ROWS, deviation=None if stage else 0.3, masks=f"{masks:016x}",
        kept=7 * (stage == 0), units=10 * (stage == 0),
    )  # fmt: skip


def label(row: int, held: range) -> int | None:
    return int(LABELS[row]) if row in held else None


def run_of(name: str, rows: Sequence[SeenRow], ranks: int = 1) -> Run:
    return replace(make_run(name, CURVE, ranks=ranks), rows=rows)


BASE = run_of("base", seen())


def told(rows: Sequence[SeenRow], baseline: Run = BASE) -> list[tuple[str, bool]]:
    return [(one.words, one.is_cause) for one in row_differences(baseline, run_of("run", rows))]


@given(st.integers(1, 4), st.integers(1, 4))
def test_a_right_run_of_any_grid_saw_what_the_baseline_saw(replicas: int, stages: int) -> None:
    assert told(seen(replicas, stages)) == []


def test_what_one_of_two_runs_has_not_seen_is_no_difference() -> None:
    assert told([]) == []
    assert told(seen(epochs=(2, 3))) == []
    assert told(seen(epochs=(3, 4))) == []


def on_the_same_rows(replicas: int, stages: int) -> list[SeenRow]:
    """Each replica sees the rows of the first."""
    first = [row for row in seen(replicas, stages) if row.replica == 0]
    return [
        replace(row, replica=replica, rank=replica * stages + row.stage) for replica in range(replicas) for row in first
    ]


@pytest.mark.parametrize(
    ("replicas", "stages", "ranks"), [(2, 1, "0 and 1"), (3, 1, "0 and 1 and 2"), (2, 2, "0 and 2"), (2, 3, "0 and 3")]
)
def test_replicas_on_the_same_rows(replicas: int, stages: int, ranks: str) -> None:
    assert told(on_the_same_rows(replicas, stages)) == [(f"ranks {ranks} train on the same rows, in run", True)]


def test_the_baselines_ranks_on_the_same_rows_are_the_baselines() -> None:
    baseline = run_of("base", on_the_same_rows(2, 1))
    assert told(seen(), baseline) == [("ranks 0 and 1 train on the same rows, in base", True)]


def test_equal_rows_in_the_file_are_no_fault() -> None:
    def alike(rows: Sequence[SeenRow]) -> list[SeenRow]:
        return [replace(row, features="00", label=1, label_before=1, label_after=1, mean=0.0) for row in rows]

    assert told(alike(seen(3)), run_of("base", alike(seen()))) == []


def test_a_shuffle_that_repeats() -> None:
    first = seen(2, epochs=(1,))
    again = [*first, *(replace(row, epoch=2) for row in first)]
    words = "the shuffle repeats: epoch 1 deals its rows in later epochs again, in {}"
    assert told(again) == [(words.format("run"), True)]
    baseline = run_of("base", again)
    assert told(seen(), baseline) == [(words.format("base"), True)]
    assert told(again, baseline) == []


def test_other_rows_without_a_pattern_have_no_name() -> None:
    other = [replace(row, features=f"{row.row + 1:016x}") for row in seen(2)]
    assert told(other) == [("the first batch of epoch 1 has other rows in run than in base", False)]


def shifted(rows: Sequence[SeenRow], by: int, replicas: int) -> list[SeenRow]:
    """As where each replica rolls the labels that it holds: at its end stands the label of its other end."""
    found = []
    for row in rows:
        shards = replica_shards(SHARDS, replicas, row.replica)
        low, high = int(ORDER.bounds[shards.start]), int(ORDER.bounds[shards.stop])
        rolled = np.roll(LABELS[low:high], by)
        place = row.row - low
        found.append(
            replace(
                row, label=int(rolled[place]),
                label_before=int(rolled[place - 1]) if place else None,
                label_after=int(rolled[place + 1]) if place + 1 < len(rolled) else None,
            )
        )  # fmt: skip
    return found


@given(st.integers(1, 4), st.integers(1, 2), st.sampled_from([-1, 1]))
def test_labels_shifted_by_a_row(replicas: int, stages: int, by: int) -> None:
    (found,) = told(shifted(seen(replicas, stages), by, replicas))
    assert found[1]
    assert found[0].startswith("labels are shifted by a row: ")
    assert found[0].endswith(f"rows have in run the label of the row {'after' if by < 0 else 'before'} them in base")


def test_other_labels_without_a_pattern_have_no_name() -> None:
    other = [replace(row, label=(row.label + 1) % 10) for row in seen()]
    (found,) = told(other)
    assert found == ("24 of 24 rows have other labels in run than in base", False)
    one_wrong = [replace(row, label=11) if place == 0 else row for place, row in enumerate(seen())]
    assert told(one_wrong) == [("1 of 24 rows have other labels in run than in base", False)]


@pytest.mark.parametrize("stages", [1, 2])
def test_other_masks(stages: int) -> None:
    other = [replace(row, masks="5", kept=10 * (row.stage == 0)) for row in seen(2, stages)]
    words = "dropout differs: 24 of 24 rows have other masks, that keep 100.0% of the units in run, 70.0% in base"
    assert told(other) == [(words, True)]


def scaled(rows: Sequence[SeenRow], factor: float) -> list[SeenRow]:
    return [
        replace(row, mean=row.mean * factor, deviation=row.deviation * factor)
        if row.mean is not None and row.deviation is not None
        else row
        for row in rows
    ]


@pytest.mark.parametrize("factor", [255 / 256, 1.001, 255.0, 0.0])
def test_another_scaling(factor: float) -> None:
    (found,) = told(scaled(seen(2, 2), factor))
    assert found[0].startswith("normalisation differs: the same row has mean ")
    assert found[1]


@given(st.floats(1 - 1e-6, 1 + 1e-6))
def test_a_scaling_that_float32_rounds_is_the_same(factor: float) -> None:
    assert told(scaled(seen(3), factor)) == []


def test_two_faults_have_two_names() -> None:
    both = scaled(shifted(seen(), -1, 1), 2.0)
    assert [words.split()[0] for words, is_cause in told(both) if is_cause] == ["labels", "normalisation"]


def test_rows_that_are_other_ones_are_held_against_nothing() -> None:
    first = seen(2, epochs=(1,))
    again = [*first, *(replace(row, epoch=2, masks="7", label=3) for row in first)]
    assert [words.split()[1] for words, _ in told(again)] == ["shuffle"]
