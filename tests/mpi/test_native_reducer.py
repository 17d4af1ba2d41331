"""--reducer native through the command: the runs of the mpi reducer, and what cannot run is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hpcnn.records.state import read_state
from tests.jobs.benchmark_modules import benchmark_module
from tests.mpi.digits import BATCH, REPOSITORY
from tests.mpi.test_faults import run_faulty
from tests.support.mpi import run_session
from tests.support.required import lacking
from tests.training.results import manifest, numbers
from tests.training.worlds import World, Worlds, refusal

pytestmark = [pytest.mark.needs("torch", "tensorflow"), pytest.mark.slow]
STEPS = 2 * 5
PARAMETERS = 246_682
CURVE = 1e-3
"""As test_training.py holds other numbers of ranks to."""
PARALLELISM = {
    "torch": "torch.nn.parallel.DistributedDataParallel",
    "tensorflow": "tf.distribute.MultiWorkerMirroredStrategy",
    "keras": "tf.distribute.MultiWorkerMirroredStrategy",
}

RANKS_OF = pytest.mark.parametrize(("backend", "ranks"), [("torch", 3), ("tensorflow", 2)])


@contextlib.contextmanager
def open_worlds() -> Iterator[Worlds]:
    """Of their own: TensorFlow starts a strategy once a process, before all else."""
    worlds = Worlds()
    try:
        yield worlds
    finally:
        worlds.close()


def train(world: World, csv: Path, out: Path, backend: str, reducer: str, *flags: object) -> Path:
    name = "-".join((reducer, *(str(flag).rpartition("/")[2] for flag in flags))).replace(":", "_")
    keras = ("--keras-backend", "tensorflow") if backend == "keras" else ()
    world.train(
        "--train", csv, "--test", csv, "--global-batch", BATCH, "--epochs", 2, "--validation-fraction", 0,
        "--optimizer", "sgd", "--learning-rate", 0.05, "--momentum", 0.9, "--out", out, "--run-id", name,
        "--backend", backend, *keras, "--reducer", reducer, *flags,
    )  # fmt: skip
    return out / name


@pytest.mark.parametrize("backend", PARALLELISM)
def test_runs_are_those_of_the_mpi_reducer(csv: Path, backend: str, tmp_path: Path) -> None:
    own = ("--network", REPOSITORY / "jobs" / "native" / f"{backend}.toml")
    with open_worlds() as worlds:
        world = worlds.of(3)
        layers = train(world, csv, tmp_path / "layers", backend, "native", *own)
        native = train(world, csv, tmp_path, backend, "native")
        pieces = train(world, csv, tmp_path, backend, "native", "--micro-batches", "3")
        slow = train(world, csv, tmp_path, backend, "native", "--slow", "1:5")
        mpi = train(world, csv, tmp_path, backend, "mpi")
        layers_by_mpi = train(world, csv, tmp_path / "layers", backend, "mpi", *own)
    assert manifest(native)["reducer"]["parallelism"] == PARALLELISM[backend]
    assert "parallelism" not in manifest(mpi)["reducer"]
    assert len(numbers(mpi, "train_loss")) == STEPS
    np.testing.assert_allclose(numbers(layers, "train_loss"), numbers(layers_by_mpi, "train_loss"), rtol=CURVE)
    for folder in (native, pieces, slow):
        np.testing.assert_allclose(numbers(folder, "train_loss"), numbers(mpi, "train_loss"), rtol=CURVE)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_ranks_of_two_nodes_meet(csv: Path, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = benchmark_module(monkeypatch, "two_nodes")
    if why := nodes.obstacle():
        lacking(why, "HPCNN_REQUIRE_NODES")
    flags = ("--train", str(csv), "--out", str(tmp_path), "--run-id", "run", "--threads", "1", "--epochs", "1")
    try:
        with nodes.two_nodes("1gbit") as pair:
            before = pair.traffic()
            command = pair.mpirun("hpcnn", "train", *flags, "--backend", backend, "--reducer", "native", ranks=2)
            run = run_session(command, timeout=200)
            sent = pair.traffic() - before
    except SystemExit as why:
        lacking(str(why), "HPCNN_REQUIRE_NODES")
    assert run.returncode == 0, run.stderr
    facts = manifest(tmp_path / "run")
    assert facts["reducer"]["parallelism"] == PARALLELISM[backend]
    assert sent > facts["steps"] * 4 * PARAMETERS  # the gradient goes over the cable at least once a step


def test_devices_of_one_process_train_as_one(csv: Path, tmp_path: Path) -> None:
    with open_worlds() as worlds:
        native = train(worlds.of(1), csv, tmp_path, "tensorflow", "native", "--reducer-option", "devices=2")
        mpi = train(worlds.of(1), csv, tmp_path, "tensorflow", "mpi")
    assert manifest(native)["reducer"]["parallelism"] == "tf.distribute.MirroredStrategy"
    np.testing.assert_allclose(numbers(native, "train_loss"), numbers(mpi, "train_loss"), rtol=CURVE)


@pytest.fixture(scope="module")
def two_ranks() -> Iterator[World]:
    with open_worlds() as worlds:
        yield worlds.of(2)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--backend", "keras", "--keras-backend", "jax"], "native is not for keras_jax: Keras over JAX shares work"),
        (
            ["--reducer-option", "devices=2"],
            "is torch.nn.DataParallel, which computes on one device where there are no",
        ),
        (["--reducer-option", "interface=nowhere"], "interface 'nowhere' is none of "),
        (["--backend", "tensorflow", "--reducer-option", "bucket_cap_mb=5"], "bucket_cap_mb is not for"),
        (["--backend", "tensorflow", "--reducer-option", "devices=2"], "are of one process, and there are 2 ranks"),
        (["--strategy", "pipeline", "--grid", "dp=1,pp=2"], "native"),
    ],
    ids=["jax", "DataParallel", "interface", "of torch", "devices", "pipeline"],
)
def test_what_cannot_run_is_refused_in_one_line(
    two_ranks: World, csv: Path, tmp_path: Path, flags: list[str], words: str
) -> None:
    outcome = two_ranks.hpcnn("train", "--train", csv, "--out", tmp_path, "--reducer", "native", "--threads", 1, *flags)
    assert words in refusal(outcome, tmp_path)


@RANKS_OF
def test_a_rank_that_raises_ends_the_job_and_its_words_come_first(tmp_path: Path, backend: str, ranks: int) -> None:
    run = run_faulty(tmp_path, "raise", ranks, ranks - 1, "--backend", backend, "--reducer", "native")
    assert run.returncode != 0
    assert run.left_behind == ()
    words = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert f"rank {ranks - 1} " in words[0]
    assert "RuntimeError: the disk of this node is on fire" in words[0]
    assert all("lost another rank" in line for line in words[1:]), run.stderr
    state = read_state(tmp_path / "out" / "run")
    assert (state.state, state.rank) == ("failed", ranks - 1)


@RANKS_OF
def test_a_rank_that_is_killed_ends_the_job(tmp_path: Path, backend: str, ranks: int) -> None:
    run = run_faulty(tmp_path, "SIGKILL", ranks, 1, "--backend", backend, "--reducer", "native")
    assert run.returncode != 0
    assert run.left_behind == ()


@RANKS_OF
def test_a_loss_that_is_no_number_ends_all_ranks_in_order(tmp_path: Path, backend: str, ranks: int) -> None:
    flags = ("--optimizer", "sgd", "--learning-rate", "1e6", "--backend", backend, "--reducer", "native")
    run = run_faulty(tmp_path, "raise", ranks, 1, *flags, moment="1000")  # long after
    assert run.returncode == 1
    assert run.left_behind == ()
    assert len([line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]) == 1
    assert "--learning-rate" in run.stderr
    assert "MPI_ABORT" not in run.stderr
