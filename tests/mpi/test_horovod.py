"""--reducer horovod: real Horovod on real ranks trains what one process trains, and is refused where it isn't whole.

Ranks share unevenly, and from three on one has no rows in the last step."""

from __future__ import annotations

import json
import os
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.network.architecture import Architecture
from hpcnn.network.initial import initial_weights
from tests.mpi.test_faults import run_faulty
from tests.mpi.test_reducers import check
from tests.mpi.tolerances import STEP_0, STEP_5, assert_tensors_near
from tests.mpi.training_driver import FiveSteps, five_steps
from tests.support.horovod import NEEDS_HOROVOD
from tests.support.mpi import REPOSITORY, run_ranks
from tests.support.pool import on_ranks, results
from tests.training.results import manifest

pytestmark = NEEDS_HOROVOD

LIMIT = 300.0
"""Of a call; the first one imports a framework on each rank."""
HALF, TINY = 2.0**-11, 2.0**-25
"""Of float16: tests/parallel/reducers/test_horovod.py."""

Options = dict[str, Any]


@pytest.fixture(scope="module")
def trained(csv: Path) -> Any:
    """What each rank found; each case is computed once."""

    @cache
    def steps(backend: str, ranks: int, settings: tuple[tuple[str, Any], ...]) -> list[FiveSteps]:
        name, _, over = backend.partition("_")
        chosen = {"backend": name, "backend_option": {"backend": over} if over else {}}
        changes = {key: dict(value) if key == "reducer_option" else value for key, value in settings}
        return results(on_ranks(ranks, five_steps, str(csv), limit=LIMIT, validation_fraction=0.0, **chosen, **changes))

    def found(backend: str, ranks: int, options: Options | None = None, **settings: Any) -> list[FiveSteps]:
        own = {"reducer": "horovod", "reducer_option": tuple((options or {}).items()), **settings}
        return steps(backend, ranks, tuple(own.items()))

    return found


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 1), (3, 3), (4, 1)])
@pytest.mark.parametrize("backend", ["torch", "tensorflow", "keras_tensorflow"])
def test_step_0_and_five_updates_are_those_of_one_process(
    trained: Any, architecture: Architecture, backend: str, ranks: int, micro_batches: int
) -> None:
    (alone,) = trained(backend, 1)
    found = trained(backend, ranks, micro_batches=micro_batches)
    check(found, alone, architecture)
    assert found[0].reducer["size"] == ranks


def test_a_rank_that_is_five_times_slower_changes_nothing(trained: Any, architecture: Architecture) -> None:
    (alone,) = trained("torch", 1)
    check(trained("torch", 3, slow="1:5"), alone, architecture)


def test_stages_of_a_hybrid_grid_add_in_process_sets_of_their_own(trained: Any, architecture: Architecture) -> None:
    (alone,) = trained("torch", 1)
    found = trained("torch", 4, strategy="hybrid", grid="dp=2,pp=2", micro_batches=3)
    assert_tensors_near(architecture, found[0].gradient, alone.gradient, STEP_0)
    start = initial_weights(architecture, 1)
    assert_tensors_near(architecture, found[0].weights - start, alone.weights - start, STEP_5)
    assert all(rank.replicas_equal for rank in found)
    assert [rank.reducer["process_set"] for rank in found] == [[0, 2], [1, 3], [0, 2], [1, 3]]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_float16_rounds_the_gradient_and_nothing_else(trained: Any, backend: str, ranks: int) -> None:
    found = trained(backend, ranks, {"compression": "fp16"})
    brought = [rank.brought.astype(np.float64) for rank in found]
    bound = ((1 + HALF) ** ranks - 1) * sum(np.abs(one) for one in brought) + 2 * ranks * TINY
    assert (np.abs(found[0].gradient - sum(brought)) <= bound).all()
    assert all(rank.replicas_equal and rank.losses == found[0].losses for rank in found)
    exact = trained(backend, ranks)[0].losses[0]
    assert abs(found[0].losses[0] - exact) <= 1e-6 * exact  # statistics are sent as they are


def train(out: Path, *flags: str, **variables: str) -> Any:
    words = [
        "train", "--train", "data/test.csv", "--max-steps", "2", "--threads", "1", "--out", str(out), "--run-id", "run",
        "--network", "jobs/small_network.toml", "--reducer", "horovod", *flags,
    ]  # fmt: skip
    return run_ranks(2, ["-m", "hpcnn", *words], timeout=LIMIT, env=variables)


def test_keras_over_torch_is_added_by_horovods_torch_and_the_run_says_so(tmp_path: Path) -> None:
    """In processes of their own: Keras computes with one thing in a process."""
    timeline = tmp_path / "timeline.json"
    run = train(tmp_path, "--backend", "keras", "--keras-backend", "torch", "--reducer-option", f"timeline={timeline}")
    assert run.returncode == 0, run.stderr
    assert run.left_behind == ()
    assert "gradient.segment0" in timeline.read_text(encoding="utf-8")
    said = json.dumps(manifest(tmp_path / "run"))
    assert '"HOROVOD_CYCLE_TIME": "0.1"' in said
    assert "horovod 0.28.1 for torch " in said


@pytest.mark.parametrize("fault", ["raise", "SIGKILL"])
def test_a_rank_that_fails_ends_the_job(tmp_path: Path, fault: str) -> None:
    """Horovod's thread on the others, which waits for it, does not keep them."""
    run = run_faulty(tmp_path, fault, 3, 1, "--reducer", "horovod")
    assert run.returncode != 0
    assert run.left_behind == ()
    said = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert fault != "raise" or ("on fire" in said[0] and len(said) == 1)


@pytest.mark.slow
def test_xla_compiles_beside_it(tmp_path: Path) -> None:
    """Horovod has no operation in XLA; ours stands outside of what is compiled."""
    run = train(tmp_path, "--backend", "tensorflow", "--backend-option", "jit_compile=true")
    assert run.returncode == 0, run.stderr


class TestRefusals:
    """Once, by rank 0, with what mends it: of a Horovod that lies before the one of the environment."""

    def refusal(self, tmp_path: Path, found: Path) -> str:
        run = train(tmp_path / "out", "--backend", "torch", PYTHONPATH=os.pathsep.join([str(found), str(REPOSITORY)]))
        assert run.returncode != 0
        (line,) = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
        assert "Traceback" not in run.stderr
        assert line.endswith(
            ": HPCNN_HOROVOD=yes bash env/create.sh compiles it for its environment, or says what that takes"
        )
        return line.removeprefix("hpcnn: --reducer horovod: ")

    @pytest.fixture
    def copy(self, tmp_path: Path) -> Path:
        (folder,) = find_spec("horovod").submodule_search_locations  # type: ignore[union-attr]
        shutil.copytree(folder, tmp_path / "found/horovod")
        return tmp_path / "found/horovod"

    def test_horovod_that_is_missing(self, tmp_path: Path) -> None:
        (tmp_path / "found").mkdir()
        (tmp_path / "found/horovod.py").touch()  # hides the package
        assert self.refusal(tmp_path, tmp_path / "found").startswith("Horovod isn't installed in this environment: ")

    @pytest.mark.parametrize(
        ("built", "words"),
        [
            ({"pytorch": "1.4.0"}, "this is horovod 0.28.1 for torch 1.4.0, but torch is "),
            ({"tensorflow": "2.21.0"}, "this is horovod 0.28.1 for tensorflow 2.21.0, not for torch: "),
        ],
    )
    def test_horovod_for_another_framework(self, tmp_path: Path, copy: Path, built: Any, words: str) -> None:
        (copy / "metadata.json").write_text(json.dumps(built), encoding="utf-8")
        assert self.refusal(tmp_path, copy.parent).startswith(words)

    def test_horovod_that_does_not_load(self, tmp_path: Path, copy: Path) -> None:
        """As one whose library was damaged, or lacks what another torch had."""
        (library,) = copy.glob("torch/mpi_lib_v2*.so")
        library.write_bytes(bytes(4096))
        assert " doesn't load (" in self.refusal(tmp_path, copy.parent)
