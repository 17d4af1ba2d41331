"""Whatever adds the gradients, ranks train the network that one process trains: mpi in all its ways, and plain.

Torch goes through all of them; the other backends, for which a cut into segments is not the same, have a few."""

from __future__ import annotations

import csv as tables
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.network.architecture import Architecture
from hpcnn.network.initial import initial_weights
from hpcnn.parallel.reducers.wire import FORMATS
from tests.mpi.digits import BATCH
from tests.mpi.tolerances import STEP_0, STEP_5, assert_tensors_near
from tests.mpi.training_driver import FiveSteps, five_steps, one_run
from tests.support.mpi import run_ranks
from tests.support.pool import on_ranks, results
from tests.wrappers.backends import OTHER_BACKENDS, chosen

LIMIT = 300.0

Options = dict[str, Any]
WAYS: list[tuple[str, Options]] = [
    ("plain", {}),
    ("mpi", {}),
    ("mpi", {"segments": 1}),
    ("mpi", {"segments": 3, "progress": "none"}),
    ("mpi", {"segments": 4, "algorithm": "flat"}),
    ("mpi", {"segments": 2, "algorithm": "flat", "progress": "none"}),
]


@pytest.fixture(scope="module")
def trained(csv: Path) -> Any:
    """What each rank found; each case is computed once."""

    @cache
    def steps(backend: str, ranks: int, micro_batches: int, reducer: str, options: tuple[Any, ...]) -> list[FiveSteps]:
        return train(csv, backend, ranks, micro_batches, reducer, dict(options))

    return lambda backend, ranks, micro_batches, reducer, options: steps(
        backend, ranks, micro_batches, reducer, tuple(sorted(options.items()))
    )


def train(csv: Path, backend: str, ranks: int, micro_batches: int, reducer: str, options: Options) -> list[FiveSteps]:
    settings = {
        **chosen(backend), "micro_batches": micro_batches, "validation_fraction": 0.0, "reducer": reducer,
        "reducer_option": options,
    }  # fmt: skip
    return results(on_ranks(ranks, five_steps, str(csv), limit=LIMIT, **settings))


def check(found: list[FiveSteps], alone: FiveSteps, architecture: Architecture) -> None:
    """Step 0 and five updates are those of one process; ranks share unevenly, and of three and more one has no rows
    once."""
    rows = [rank.rows for rank in found]
    assert [sum(step) for step in zip(*rows, strict=True)] == [BATCH] * 4 + [2]
    assert len(found) < 3 or any(rank[-1] == 0 for rank in rows)
    assert any(len({rank[step] for rank in rows}) > 1 for step in range(5))
    assert_tensors_near(architecture, found[0].gradient, alone.gradient, STEP_0)
    start = initial_weights(architecture, 1)
    assert_tensors_near(architecture, found[0].weights - start, alone.weights - start, STEP_5)
    assert all(rank.replicas_equal and rank.losses == found[0].losses for rank in found)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(("reducer", "options"), WAYS)
def test_torch_trains_what_one_process_trains(
    trained: Any, architecture: Architecture, reducer: str, options: Options, ranks: int, micro_batches: int
) -> None:
    (alone,) = trained("torch", 1, 1, "mpi", {})
    check(trained("torch", ranks, micro_batches, reducer, options), alone, architecture)


@OTHER_BACKENDS
@pytest.mark.parametrize(("ranks", "micro_batches", "segments"), [(2, 1, 2), (3, 3, 3), (4, 1, 2)])
def test_the_other_backends_do_in_segments(
    trained: Any, architecture: Architecture, backend: str, ranks: int, micro_batches: int, segments: int
) -> None:
    (alone,) = trained(backend, 1, 1, "mpi", {})
    check(trained(backend, ranks, micro_batches, "mpi", {"segments": segments}), alone, architecture)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(("reducer", "options"), WAYS)
def test_the_same_steps_again_leave_the_same_bits(
    trained: Any, csv: Path, reducer: str, options: Options, ranks: int
) -> None:
    before, again = trained("torch", ranks, 1, reducer, options)[0], train(csv, "torch", ranks, 1, reducer, options)[0]
    assert again.losses == before.losses
    assert again.weights.tobytes() == before.weights.tobytes()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_messages_of_sixteen_bits_round_the_gradient_and_nothing_else(trained: Any, ranks: int, wire: str) -> None:
    found = trained("torch", ranks, 1, "mpi", {"wire": wire})
    brought = [rank.brought.astype(np.float64) for rank in found]
    total, u = sum(brought), FORMATS[wire].roundoff
    magnitude = sum(np.abs(one) for one in brought)
    # hpcnn.parallel.reducers.wire has the bound; the last terms are those of test_reducers.py: the float32 sum, and
    # numbers below float16's normal range, of which a gradient has many
    tiny = 2.0**-25 * (ranks + 1) if wire == "float16" else 0.0
    bound = u * (1 + u) * magnitude + u * np.abs(total) + (ranks - 1) * 2.0**-24 * magnitude + tiny
    assert (np.abs(found[0].gradient - total) <= bound * 1.001).all()
    assert all(rank.replicas_equal and rank.losses == found[0].losses for rank in found)
    exact = trained("torch", ranks, 1, "mpi", {})[0].losses[0]
    assert abs(found[0].losses[0] - exact) <= 1e-6 * exact  # statistics are sent as they are


@pytest.mark.needs("torch")
def test_dense_layers_are_added_before_the_convolutions_are_through(csv: Path, tmp_path: Path) -> None:
    """Seen in the trace: of segment 1 (dense) the sum has ended, in some step, before the backward of segment 0 has."""
    settings = {"network": "cnn2d_2layer_fullconnected_2layer", "trace": True, "epochs": 2, "out": str(tmp_path)}
    (folder, _) = results(on_ranks(2, one_run, str(csv), limit=LIMIT, **settings))
    slices = json.loads(Path(folder, "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    ends: dict[tuple[int, int, str], float] = {}
    for one in slices:
        step = one.get("args", {}).get("step")
        if step is not None and one.get("ph") == "X" and (one["cat"] == "meanwhile" or one["name"] == "B0.0"):
            ends[one["pid"], step, one["name"]] = one["ts"] + one["dur"]
    steps = {(rank, step) for rank, step, _ in ends}
    assert {rank for rank, _ in steps} == {0, 1}
    assert any(ends[rank, step, "C1"] < ends[rank, step, "B0.0"] for rank, step in steps)
    with open(Path(folder, "timing.csv"), encoding="utf-8") as stream:
        assert any(float(row["hidden_seconds"]) > 0 for row in tables.DictReader(stream))


@pytest.mark.needs("torch")
def test_one_replica_is_told_that_nothing_is_added(
    csv: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from mpi4py import MPI

    one_run(MPI.COMM_SELF, str(csv), reducer="plain", epochs=1, max_steps=1, out=str(tmp_path))
    assert "warning: --reducer plain adds nothing: there is one replica" in capfd.readouterr().out


@pytest.mark.needs("torch")
def test_the_table_of_times_tells_what_travels(csv: Path, tmp_path: Path) -> None:
    steps = 3
    flags = ["--global-batch", "30", "--max-steps", str(steps), "--reducer-option", "wire=float16", "--threads", "1"]
    named = ["--train", str(csv), "--out", str(tmp_path), "--run-id", "half"]
    run = run_ranks(2, ["-m", "hpcnn", "train", *named, *flags])
    assert run.returncode == 0, run.stderr
    parameters = json.loads((tmp_path / "half" / "run.json").read_text(encoding="utf-8"))["parameters"]
    with (tmp_path / "half" / "timing.csv").open(newline="", encoding="utf-8") as table:
        moved = [
            int(row["bytes"])
            for row in tables.DictReader(table)
            if row["phase"] == "communicate" and row["rank"] == "0"
        ]
    assert sum(moved) == steps * (2 * parameters + 2 * 4)
