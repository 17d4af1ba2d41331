"""rows.csv and replicas.csv tell what ranks really computed with, alike on any layout of them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.data.dataset import load_dataset
from hpcnn.data.order import BatchOrder
from hpcnn.records.evidence import SeenRow
from hpcnn.studies.reading import Run, read_run
from hpcnn.studies.seen import row_differences
from tests.studies.trained import trained, write_files

SHARDS = 13
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "alone": (1, {}),
    "data": (3, {}),
    "pipeline": (2, {"strategy": "pipeline", "micro_batches": 2}),
    "hybrid": (4, {"strategy": "hybrid", "grid": "dp=2,pp=2", "micro_batches": 2}),
}
pytestmark = pytest.mark.needs("torch")
EVERY_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {**write_files(tmp_path_factory.mktemp("seen")), "backend": "torch"}


@pytest.fixture(scope="module")
def run(files: dict[str, Any]) -> Any:
    @cache
    def run(layout: str) -> Run:
        ranks, settings = LAYOUTS[layout]
        (path,) = trained(ranks, [{**files, **settings, "epochs": 4, "validation_fraction": 0.1, "run_id": layout}])
        return read_run(path)

    return run


@EVERY_LAYOUT
def test_rows_are_the_first_of_each_logical_shard_in_the_first_epochs_with_their_labels(
    run: Any, files: dict[str, Any], layout: str
) -> None:
    data = load_dataset(files["train"], logical_shards=SHARDS)
    assert data.labels is not None
    order = BatchOrder(data.rows, SHARDS, 13, 0.1, 1)
    stages = 2 if layout in ("pipeline", "hybrid") else 1
    for epoch in (1, 2, 3):
        expected = sorted(order.rows(epoch, 0, range(SHARDS)).tolist())
        for stage in range(stages):
            mine = [row for row in run(layout).rows if (row.epoch, row.stage) == (epoch, stage)]
            assert sorted(row.row for row in mine) == expected
            for row in mine:
                values = data.features[row.row].astype("<f4")
                assert row.features == hashlib.blake2b(values.tobytes(), digest_size=8).hexdigest()
                assert row.label == data.labels[row.row]
                assert row.label_before in (None, data.labels[row.row - 1])
                assert row.label_after in (None, *data.labels[row.row + 1 : row.row + 2])
                assert_scaled(row, data.features)
    assert {row.epoch for row in run(layout).rows} == {1, 2, 3}


def assert_scaled(row: SeenRow, features: Any) -> None:
    """What went into the first layer, whose pixels are divided by the largest of the training rows, 255."""
    if row.stage:
        assert (row.mean, row.deviation) == (None, None)
        return
    scaled = features[row.row] / 255.0
    assert (row.mean, row.deviation) == pytest.approx((scaled.mean(), scaled.std()), rel=1e-5)


@pytest.mark.parametrize("layout", list(LAYOUTS)[1:])
def test_every_layout_saw_the_same_rows_labels_and_masks(run: Any, layout: str) -> None:
    assert row_differences(run("alone"), run(layout)) == []
    kept, units = (np.sum([getattr(row, name) for row in run(layout).rows]) for name in ("kept", "units"))
    assert kept / units == pytest.approx(0.75, abs=0.02)


@EVERY_LAYOUT
def test_replicas_are_equal_and_their_shares_add_up(run: Any, layout: str) -> None:
    found: Run = run(layout)
    ranks, _ = LAYOUTS[layout]
    assert [(one.rank, one.epoch) for one in found.replicas] == [(r, e) for e in (1, 2, 3, 4) for r in range(ranks)]
    for epoch in (1, 2, 3, 4):
        norm = float(found.losses["gradient_norm"][found.replicas[ranks * (epoch - 1)].step])
        stages: dict[int, list[Any]] = {}
        for one in found.replicas:
            if one.epoch == epoch:
                stages.setdefault(one.stage, []).append(one)
        for replicas in stages.values():
            assert len({one.weights for one in replicas}) == 1
            added = len(replicas) > 1 and epoch == 1
            assert [one.share is not None for one in replicas] == [added] * len(replicas)
            assert not added or sum(one.share for one in replicas) == pytest.approx(1, abs=1e-5)
        squares = [replicas[0].sum_norm ** 2 for replicas in stages.values() if replicas[0].share is not None]
        assert not squares or sum(squares) == pytest.approx(norm**2, rel=1e-4)
    assert len({one.weights for one in found.replicas if one.rank == 0}) == 4


def test_a_run_that_goes_on_in_the_middle_of_an_epoch_sees_the_first_rows_of_the_next(files: dict[str, Any]) -> None:
    first = {**files, "max_steps": 3, "run_id": "first"}
    (folder,) = trained(2, [first])
    (path,) = trained(2, [{**files, "resume": str(folder), "run_id": "second"}])
    resumed = read_run(path)
    assert {row.epoch for row in resumed.rows} == {2}
    assert [(one.epoch, one.step) for one in resumed.replicas] == [(1, 3), (1, 3), (2, 8), (2, 8)]


def test_a_run_of_no_epoch_has_seen_nothing(files: dict[str, Any]) -> None:
    (path,) = trained(1, [{**files, "epochs": 0, "run_id": "none"}])
    found = read_run(Path(path))
    assert (found.rows, found.replicas) == ([], [])
