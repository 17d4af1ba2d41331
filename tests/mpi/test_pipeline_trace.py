"""The trace of pipelines on real ranks: every operation of the programs in its order, every message an arrow."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from hpcnn.parallel.pipeline import pipeline_programs
from hpcnn.records.phases import MEANWHILE
from tests.mpi.digits import BATCH, write_digits
from tests.mpi.training_driver import one_run
from tests.records.flows import flows_of, names_of, slices_of
from tests.support.pool import on_ranks, results

STEPS, MICRO_BATCHES = 3, 3
NETWORK = "cnn2d_2layer_fullconnected_2layer"
LIMIT = 300.0
CASES = [
    ("dp=1,pp=2", "gpipe", 1), ("dp=1,pp=3", "zero-bubble", 1), ("dp=2,pp=2", "1f1b", 1),
    ("dp=2,pp=2", "interleaved", 2),
]  # fmt: skip

pytestmark = pytest.mark.needs("torch", "matplotlib")


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[1]}-{case[0]}")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    grid, schedule, chunks = request.param
    dp, pp = (int(part[3:]) for part in grid.split(","))
    folder = tmp_path_factory.mktemp("traced")
    csv = write_digits(folder, STEPS * BATCH)
    settings = {
        "strategy": "pipeline" if dp == 1 else "hybrid", "grid": grid, "schedule": schedule, "chunks": chunks,
        "micro_batches": MICRO_BATCHES, "network": NETWORK, "backend": "torch", "out": str(folder), "run_id": "run",
        "epochs": 1, "validation_fraction": 0.0, "trace": True,
    }  # fmt: skip
    results(on_ranks(dp * pp, one_run, str(csv), limit=LIMIT, **settings))
    return (dp, pp, schedule, chunks), folder / "run"


def document_of(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
    return document


def test_each_step_shows_the_operations_of_the_ranks_program_in_its_order(run: tuple[Any, Path]) -> None:
    (dp, pp, schedule, chunks), folder = run
    document = document_of(folder)
    programs = pipeline_programs(schedule, pp, MICRO_BATCHES, chunks, dp)
    for rank in range(dp * pp):
        replica, stage = divmod(rank, pp)
        assert names_of(document)[rank].endswith(f", replica {replica}, stage {stage}")
        mine = [one for one in slices_of(document) if one["pid"] == rank and one["cat"] != MEANWHILE]
        for before, after in itertools.pairwise(mine):
            assert after["ts"] == pytest.approx(before["ts"] + before["dur"], abs=1e-3)
        for step in range(STEPS):
            names = [one["name"] for one in mine if one.get("args") == {"step": step}]
            assert [name for name, _ in itertools.groupby(names)] == [str(operation) for operation in programs[stage]]


def test_every_message_is_an_arrow_between_the_stages_of_one_replica(run: tuple[Any, Path]) -> None:
    (dp, pp, _, chunks), folder = run
    document = document_of(folder)
    flows = flows_of(document)
    boundaries = pp * chunks - 1
    assert len(flows) == 2 * boundaries * MICRO_BATCHES * STEPS * dp
    for flow in flows:
        sender, receiver = flow.send["pid"], flow.accept["pid"]
        assert sender // pp == receiver // pp
        assert sender != receiver
        assert flow.send["args"] == flow.accept["args"]
    found = document["otherData"]["messages"]
    error = max(clock["error_seconds"] for clock in document["otherData"]["clocks"].values())
    assert (found["count"], found["without_other_end"]) == (len(flows), 0)
    # No message comes before it was sent, as far as two clocks can tell.
    assert found["fastest_seconds"] >= -2 * error


def test_the_picture_lies_beside_the_trace(run: tuple[Any, Path]) -> None:
    _, folder = run
    from matplotlib import image

    assert image.imread(folder / "timeline.png").std() > 0.05
