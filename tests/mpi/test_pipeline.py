"""Pipelines on real ranks: every schedule and grid trains what one process trains, in every backend.

torch has the full matrix; the other backends a set in which each pair of (schedule, grid, micro-batches) comes once."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.errors import BackendError
from hpcnn.network.initial import initial_weights
from hpcnn.network.network_file import get_network
from hpcnn.parallel.messages import Messages
from hpcnn.parallel.program import Kind, Operation
from tests.mpi.digits import BATCH, write_digits
from tests.mpi.tolerances import STEP_0, STEP_5, assert_tensors_near
from tests.mpi.training_driver import FiveSteps, five_steps, one_run, two_runs
from tests.support.mpi import run_ranks, run_session
from tests.support.pool import on_ranks, results
from tests.training.results import curve, numbers
from tests.wrappers.backends import INSTALLED, OTHER_BACKENDS, chosen

ROWS = 4 * BATCH + 2
"""Five steps, whose last has two rows: of four micro-batches some have none."""
LIMIT = 300.0
"""Of a call; the first one imports a framework on each rank."""
ONE_PROCESS = {"strategy": "single"}
ZOO = ("cnn2d_3layer_fullconnected_3layer", "cnn2d_2layer_fullconnected_2layer")

CURVE = 1e-3
"""Relative, of a loss or a norm within ten steps: as in test_training.py."""

GRIDS = ("dp=1,pp=2", "dp=1,pp=3", "dp=1,pp=4", "dp=2,pp=2")
SCHEDULES = ("layer-by-layer", "gpipe", "1f1b", "interleaved", "zero-bubble")
MICRO_BATCHES = (1, 3, 4, 40)
"""Fewer than stages, unequal, as many as stages, more than rows."""

ODD = """
[network]
name = "odd"
[[layer]]
type = "convolution"
filters = 6
kernel = 3
stride = 2
padding = "same"
bias = 0.01
[[layer]]
type = "tanh"
[[layer]]
type = "average_pool"
size = 2
[[layer]]
type = "convolution"
filters = 8
kernel = 3
groups = 2
bias = 0.01
[[layer]]
type = "relu"
[[layer]]
type = "max_pool"
size = 2
[[layer]]
type = "dropout"
rate = 0.25
[[layer]]
type = "flatten"
[[layer]]
type = "dense"
units = 16
bias = 0.01
[[layer]]
type = "relu"
[[layer]]
type = "dropout"
rate = 0.5
[[layer]]
type = "dense"
units = "classes"
[[layer]]
type = "softmax"
"""
"""Stride, groups, average pooling."""


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), ROWS)


def settings(grid: str, schedule: str, micro_batches: int, **others: Any) -> dict[str, Any]:
    strategy = "pipeline" if grid.startswith("dp=1") else "hybrid"
    return {"strategy": strategy, "grid": grid, "schedule": schedule, "micro_batches": micro_batches, **others}


def size_of(grid: str) -> int:
    return int(np.prod([int(part.partition("=")[2]) for part in grid.split(",")]))


def trained(csv: Path, grid: str, schedule: str, micro_batches: int, **others: Any) -> list[FiveSteps]:
    chosen_settings = settings(grid, schedule, micro_batches, validation_fraction=0.0, **others)
    return results(on_ranks(size_of(grid), five_steps, str(csv), limit=LIMIT, **chosen_settings))


@pytest.fixture(scope="module")
def alone(csv: Path) -> Any:
    """One process's steps; each network and backend is computed once."""

    @cache
    def steps(backend: str, network: str) -> FiveSteps:
        given = {**chosen(backend), **ONE_PROCESS, "network": network, "validation_fraction": 0.0}
        (found,) = results(on_ranks(1, five_steps, str(csv), limit=LIMIT, **given))
        return found

    return steps


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("odd") / "odd.toml"
    path.write_text(ODD)
    return str(path)


def assert_same(network: str, found: list[FiveSteps], alone: FiveSteps) -> None:
    architecture = get_network(network, (1, 28, 28), 10)
    assert_tensors_near(architecture, found[0].gradient, alone.gradient, STEP_0)
    start = initial_weights(architecture, 1)
    assert_tensors_near(architecture, found[0].weights - start, alone.weights - start, STEP_5)
    np.testing.assert_allclose(found[0].losses, alone.losses, rtol=STEP_5)
    assert all(rank.replicas_equal and rank.losses == found[0].losses for rank in found)


@pytest.mark.parametrize("micro_batches", MICRO_BATCHES)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.needs("torch")
def test_every_schedule_and_grid_takes_the_steps_of_one_process(
    csv: Path, alone: Any, schedule: str, grid: str, micro_batches: int
) -> None:
    found = trained(csv, grid, schedule, micro_batches, network=ZOO[0])
    assert_same(ZOO[0], found, alone("torch", ZOO[0]))


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.needs("torch")
def test_so_do_other_networks(csv: Path, alone: Any, odd: str, schedule: str, grid: str) -> None:
    """The other one of the zoo, and one with a stride, groups and average pooling."""
    for network, micro_batches in ((ZOO[1], 3), (odd, 4)):
        found = trained(csv, grid, schedule, micro_batches, network=network)
        assert_same(network, found, alone("torch", network))


@pytest.mark.parametrize("first", ["relu1", "pool1", "conv2", "dropout1", "flatten", "dense1", "dense2", "dense3"])
@pytest.mark.needs("torch")
def test_it_does_not_matter_where_a_layer_sits(csv: Path, alone: Any, first: str) -> None:
    found = trained(csv, "dp=1,pp=2", "1f1b", 3, network=ZOO[0], stages=first, balance="explicit")
    assert_same(ZOO[0], found, alone("torch", ZOO[0]))


@pytest.mark.needs("torch")
def test_nor_that_a_measured_pass_says_where(csv: Path, alone: Any) -> None:
    found = trained(csv, "dp=1,pp=3", "1f1b", 3, network=ZOO[0], balance="measured")
    assert_same(ZOO[0], found, alone("torch", ZOO[0]))


FACE = """
import json, sys
from hpcnn import get_wrapper
network = get_wrapper("torch", out=sys.argv[2], progress=False, threads=1, strategy="pipeline", micro_batches=2)
network.build_model(sys.argv[3], input_shape=(1, 28, 28), num_classes=10)
first = network.train(sys.argv[1], batch_size=31, n_epochs=1, test=sys.argv[1])
found = network.evaluate(sys.argv[1])
second = network.train(sys.argv[1], batch_size=31, n_epochs=1, run_id="second")
if network.rank == 0:
    print(json.dumps([found.loss, first.test.loss, found.accuracy, first.test.accuracy, second.history[0].step]))
"""


@pytest.mark.needs("torch")
def test_a_script_trains_stages_evaluates_the_whole_and_goes_on(csv: Path, odd: str, tmp_path: Path) -> None:
    run = run_ranks(2, ["-c", FACE, str(csv), str(tmp_path), odd], timeout=LIMIT)
    assert run.returncode == 0, run.stderr
    loss, tested_loss, accuracy, tested_accuracy, step = json.loads(run.stdout.splitlines()[-1])
    assert loss == pytest.approx(tested_loss, rel=STEP_0)  # by each rank with all layers, and by the stages together
    assert abs(accuracy - tested_accuracy) <= 1 / ROWS
    assert step == 5
    assert numbers(tmp_path / "second", "step") == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("schedule", "grid", "micro_batches"),
    [
        (schedule, GRIDS[place], MICRO_BATCHES[1 + (row + column) % 3])
        for row, schedule in enumerate(SCHEDULES[:4])
        for column, place in enumerate((0, 1, 3))
    ],
)
@OTHER_BACKENDS
def test_other_backends_do_the_same(
    csv: Path, alone: Any, odd: str, backend: str, schedule: str, grid: str, micro_batches: int
) -> None:
    """Each pair of schedule, grid and micro-batches comes once."""
    found = trained(csv, grid, schedule, micro_batches, network=odd, **chosen(backend))
    assert_same(odd, found, alone(backend, odd))


@OTHER_BACKENDS
def test_a_schedule_that_splits_backwards_is_refused_by_name(csv: Path, odd: str, backend: str) -> None:
    given = settings("dp=1,pp=2", "zero-bubble", 2, network=odd, **chosen(backend))
    for refusal in on_ranks(2, five_steps, str(csv), limit=LIMIT, **given):
        assert isinstance(refusal, BackendError)
        assert backend in str(refusal)
        assert "--schedule" in str(refusal)


@pytest.mark.parametrize("backend", INSTALLED)
def test_a_checkpoint_of_four_stages_goes_on_as_four_replicas_and_predicts_in_one_process(
    csv: Path, odd: str, backend: str, tmp_path: Path
) -> None:
    same = {**chosen(backend), "network": odd, "out": str(tmp_path)}
    four = {**same, "epochs": 1, "run_id": "stages", "strategy": "pipeline", "micro_batches": 3, "schedule": "gpipe"}
    folders = results(on_ranks(4, one_run, str(csv), limit=LIMIT, **four))
    assert folders == [str(tmp_path / "stages")] * 4
    resumed = {**same, "epochs": 2, "run_id": "replicas", "resume": folders[0]}
    results(on_ranks(4, one_run, str(csv), limit=LIMIT, **resumed))
    results(on_ranks(1, one_run, str(csv), limit=LIMIT, **{**same, **ONE_PROCESS, "epochs": 2, "run_id": "alone"}))

    for column in ("train_loss", "gradient_norm"):
        together = [*numbers(tmp_path / "stages", column), *numbers(tmp_path / "replicas", column)]
        np.testing.assert_allclose(together, numbers(tmp_path / "alone", column), rtol=CURVE, err_msg=column)
    manifest = json.loads((tmp_path / "stages/run.json").read_text())
    assert [stage["stage"] for stage in manifest["stages"]] == [0, 1, 2, 3]
    assert sum(stage["parameters"] for stage in manifest["stages"]) == manifest["parameters"]
    tested = (tmp_path / "stages/predictions.csv").read_text()
    words = ["predict", str(tmp_path / "stages"), "--data", str(csv), "--out", str(tmp_path / "again.csv")]
    again = run_session([sys.executable, "-m", "hpcnn", *words], timeout=LIMIT)
    assert again.returncode == 0, again.stderr
    assert agreement(tested, (tmp_path / "again.csv").read_text()) >= 1 - 1 / ROWS


def agreement(one: str, other: str) -> float:
    """Share of equal rows of two tables of predictions."""
    pairs = list(zip(one.splitlines()[1:], other.splitlines()[1:], strict=True))
    return sum(first == second for first, second in pairs) / len(pairs)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.needs("torch")
def test_a_run_twice_leaves_the_same_bits(csv: Path, tmp_path: Path, schedule: str) -> None:
    given = settings("dp=2,pp=2", schedule, 3, network=ZOO[1])
    results(on_ranks(4, two_runs, str(csv), str(tmp_path), limit=LIMIT, **given))
    first, second = tmp_path / "first", tmp_path / "second"
    assert len(curve(first)) == 2 * 4
    assert curve(first) == curve(second)
    assert (first / "predictions.csv").read_text() == (second / "predictions.csv").read_text()


@pytest.mark.parametrize("units", [2**4, 2**12, 2**18], ids=["4 KiB", "1 MiB", "64 MiB"])
@pytest.mark.needs("torch")
def test_activations_of_any_size_pass(units: int) -> None:
    """Both ways at once: each stage sends the other 64 rows of so many numbers, and then looks for what it gets."""
    assert results(on_ranks(2, exchange, 64, units)) == [True, True]


def exchange(comm: Any, rows: int, units: int) -> bool:
    """For `on_ranks`: both stages send before they receive, three times over."""
    messages = Messages(comm.Dup())
    right = True
    for number in range(3):
        out, back = (Operation(Kind.SEND, 0, number), Operation(Kind.TRANSMIT, 1, number))
        mine, other = (out, back.other_end) if comm.rank == 0 else (back, out.other_end)
        messages.expect([(other, (rows, units))])
        messages.send(mine, np.full((rows, units), 10 * number + comm.rank, np.float32))
        received = messages.receive(other)
        right = right and bool((received == 10 * number + 1 - comm.rank).all())
        messages.release(other)
    messages.finish()
    return right
