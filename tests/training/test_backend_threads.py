"""--threads is what a framework really uses: set before it starts, said in run.json, and seen by the kernel."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hpcnn.backend_options import backend_label, resolve_options
from tests.support.mpi import run_session
from tests.training.results import manifest
from tests.training.worlds import World, refusal
from tests.wrappers.backends import EVERY_BACKEND, KERAS_BACKEND


@pytest.fixture(scope="module")
def trained(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a training in a process of its own was like, and its manifest."""
    out = tmp_path_factory.mktemp("threads")

    @cache
    def run(backend: str, threads: int, *flags: object) -> dict[str, Any]:
        name = f"{backend}-{threads}{len(flags)}"
        flags = (*flags, "--keras-backend", KERAS_BACKEND) if backend == "keras" else flags
        command = [
            "-m", "tests.training.threads_driver", backend_label(backend, {"backend": KERAS_BACKEND}).split("_")[-1],
            "train", "--train", files / "train.csv", "--network", files / "little.toml", "--max-steps", 3,
            "--threads", threads, "--backend", backend, "--out", out, "--run-id", name, *flags,
        ]  # fmt: skip
        found = run_session([sys.executable, *map(str, command)], env={"OMP_NUM_THREADS": ""}, timeout=120)
        assert found.returncode == 0, found.stderr
        seen: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
        return {**seen, **manifest(out / name)}

    return run


def threads_said(run: dict[str, Any]) -> int:
    """Of one operation, as the framework itself tells it."""
    described = run["backend"]
    return int(described["threads"] if "threads" in described else described["intra_op_threads"])


@EVERY_BACKEND
def test_the_framework_has_as_many_threads_as_were_asked_for(trained: Any, backend: str) -> None:
    one, two = trained(backend, 1), trained(backend, 2)
    for count, run in ((1, one), (2, two)):
        assert run["threads"] == {"source": "--threads", "per_rank": [count]}
        assert run["at_import"] == str(count)
        assert threads_said(run) == count
        assert run["cores_before"] == run["cores_after"] == sorted(os.sched_getaffinity(0))
    # A pool of two has a thread more than a pool of one; what else a framework keeps does not depend on it.
    assert two["os_threads"] > one["os_threads"]


@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])  # Keras uses the same call as TensorFlow
def test_a_switch_of_the_framework_counts_before_the_threads_of_the_rank(trained: Any, backend: str) -> None:
    options = ("--backend-option", "intra_op_threads=3", "--backend-option", "inter_op_threads=2")
    run = trained(backend, 1, *options)
    assert threads_said(run) == 3
    assert run["backend"]["inter_op_threads"] == 2
    own = resolve_options(backend, {"intra_op_threads": 3, "inter_op_threads": 2})
    assert run["backend"]["options"] == dataclasses.asdict(own)  # all of them, also those that nobody gave
    assert run["config"]["backend_option"] == {"inter_op_threads": 2, "intra_op_threads": 3}
    assert run["threads"]["per_rank"] == [1]
    assert run["os_threads"] > trained(backend, 1)["os_threads"]


@pytest.mark.needs("tensorflow")
def test_tensorflow_that_runs_already_with_other_threads_is_refused_in_one_line(
    world: World, files: Path, tmp_path: Path
) -> None:
    rows = ["--train", files / "train.csv", "--network", files / "little.toml", "--max-steps", 1, "--out", tmp_path]
    world.train(*rows, "--backend", "tensorflow", "--run-id", "first")
    again = world.hpcnn("train", "--threads", 2, *rows, "--backend", "tensorflow", "--run-id", "second")
    words = refusal(again, tmp_path / "second")
    assert words == (
        "TensorFlow runs in this process already, with 1 intra-op threads (0: as many as it likes), not 2: start "
        "another process"
    )
    world.train(*rows, "--backend", "tensorflow", "--run-id", "third")  # as before, it goes on


@pytest.mark.needs("torch")
def test_torch_takes_other_threads_as_it_runs(world: World, files: Path, tmp_path: Path) -> None:
    rows = ["--train", files / "train.csv", "--network", files / "little.toml", "--max-steps", 1, "--out", tmp_path]
    for threads in (2, 1):
        outcome = world.hpcnn("train", "--threads", threads, *rows, "--backend", "torch", "--run-id", threads)
        assert outcome.status == 0, outcome.stderr
        assert manifest(tmp_path / str(threads))["backend"]["threads"] == threads
