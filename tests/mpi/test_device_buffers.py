"""Gradients that MPI adds where a device has them are those that it adds in the host's memory; the device is a CPU.

MPI is the real one, and gets torch's own tensor, as it would that of a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.network.architecture import Architecture
from tests.mpi.tolerances import STEP_0, STEP_5, assert_tensors_near
from tests.mpi.training_driver import FiveSteps, five_steps, one_run
from tests.support.pool import on_ranks, results
from tests.training.results import table
from tests.wrappers.test_torch_vectors import placed_as_copies

pytestmark = pytest.mark.needs("torch")


@contextlib.contextmanager
def on_a_device(reads: bool = True) -> Iterator[None]:
    """--device cuda computes on a CPU, and is said to be read by MPI."""
    with placed_as_copies(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpcnn.training.prepare.claim_gpu", lambda comm: "GPU-0")
        patch.setattr("hpcnn.training.reducing.mpi_reads_gpus", lambda: reads)
        yield


ALL = {"validation_fraction": 0.0}
"""Of five steps."""


def steps_on_device(comm: Any, csv: str, reads: bool = True, **settings: Any) -> FiveSteps:
    with on_a_device(reads):
        return five_steps(comm, csv, device="cuda", **settings, **ALL)


def run_on_device(comm: Any, csv: str, **settings: Any) -> str:
    with on_a_device():
        return one_run(comm, csv, device="cuda", **settings)


@pytest.mark.parametrize(
    ("ranks", "settings"),
    [
        (2, {}),
        (3, {"micro_batches": 3}),
        (4, {"reducer_option": {"segments": 3}}),
        (4, {"strategy": "hybrid", "grid": "dp=2,pp=2", "micro_batches": 2}),
    ],
)
def test_step_0_and_five_updates_are_those_of_the_host(
    csv: Path, architecture: Architecture, ranks: int, settings: dict[str, Any]
) -> None:
    expected = results(on_ranks(ranks, five_steps, str(csv), reducer="plain", **_of_plain(settings), **ALL))
    found = results(on_ranks(ranks, steps_on_device, str(csv), **settings))
    for one, other in zip(found, expected, strict=True):
        assert one.reducer["buffers"] == "device"
        assert one.replicas_equal
        assert one.rows == other.rows
        np.testing.assert_allclose(one.losses, other.losses, rtol=1e-6)
        assert_tensors_near(architecture, one.gradient, other.gradient, STEP_0)
        assert_tensors_near(architecture, one.weights, other.weights, STEP_5)


def _of_plain(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "reducer_option"}


def test_what_each_rank_brought_is_still_seen(csv: Path, tmp_path: Path) -> None:
    folder = Path(results(on_ranks(2, run_on_device, str(csv), out=str(tmp_path), run_id="run", epochs=1))[0])
    shares = [float(row["share"]) for row in table(folder / "replicas.csv") if row["share"]]
    assert len(shares) == 2
    assert sum(shares) == pytest.approx(1.0, abs=1e-5)
    assert all(0.1 < share < 0.9 for share in shares)


def refused(comm: Any, csv: str, reads: bool, device: str, options: dict[str, Any], **settings: Any) -> str:
    chosen = {"buffers": "device", **options}
    with on_a_device(reads), pytest.raises(Exception, match="buffers=device") as caught:
        five_steps(comm, csv, device=device, reducer_option=chosen, **settings)
    return str(caught.value)


@pytest.mark.parametrize(
    ("reads", "device", "options", "settings", "words"),
    [
        (False, "cuda", {}, {}, "this MPI says that it reads no GPU's memory"),
        (True, "cpu", {}, {}, "there is no device but the host's CPUs without --device cuda"),
        (True, "cuda", {"algorithm": "nodes"}, {}, "algorithm=nodes is for messages of the host"),
        (True, "cuda", {"wire": "bfloat16"}, {}, "wire=bfloat16 is for messages of the host"),
        (True, "cuda", {}, {"inject": "rank-left-out"}, "changes messages of the host"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    csv: Path, reads: bool, device: str, options: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    for said in results(on_ranks(2, refused, str(csv), reads, device, options, **settings)):
        assert said.startswith("--reducer-option buffers=device: ")
        assert words in said
        assert said.endswith("leave it out, and the host's memory is used")


def test_an_mpi_that_reads_no_gpu_adds_in_the_hosts_memory(csv: Path) -> None:
    assert all("buffers" not in one.reducer for one in results(on_ranks(2, steps_on_device, str(csv), False)))


def what_it_says(comm: Any) -> tuple[str, bool]:
    from mpi4py import MPI

    from hpcnn.parallel.reducers.device_reducer import mpi_reads_gpus

    return MPI.get_vendor()[0], mpi_reads_gpus()


def test_the_library_that_runs_is_asked() -> None:
    """Neither PyPI's Open MPI nor Debian's is built for CUDA."""
    assert {said for _, said in results(on_ranks(2, what_it_says))} == {False}
