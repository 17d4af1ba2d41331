"""TensorFlow's strategies around tensorflow and Keras: the gradients and updates of one process, whatever rows a rank
has; and Keras over torch, which runs in a process of its own as they do."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.mpi.digits import write_digits
from tests.support.mpi import run_ranks
from tests.wrappers.fused_checks import assert_one_process
from tests.wrappers.fused_on_ranks import CASES

pytestmark = [pytest.mark.needs("tensorflow", "torch"), pytest.mark.slow]
STRATEGIES = {
    "MultiWorkerMirroredStrategy": "tensorflow.python.distribute.collective_all_reduce_strategy",
    "MirroredStrategy": "tensorflow.python.distribute.mirrored_strategy",
}


def steps(tmp_path: Path, ranks: int, backend: str, *options: str) -> dict[str, Any]:
    """Rank 0's facts, after all that it found has been held to one process."""
    csv, out = write_digits(tmp_path), tmp_path / "found"
    argv = ["-m", "mpi4py", "-m", "tests.wrappers.fused_on_ranks", backend, str(csv), str(out), *options]
    run = run_ranks(ranks, argv, timeout=400)
    assert run.returncode == 0, run.stderr
    assert run.left_behind == ()
    found, alone = pickle.loads(out.read_bytes())
    for case in CASES:
        assert_one_process(found[case], alone)
    facts: dict[str, Any] = found[CASES[0]].facts
    return facts


@pytest.mark.parametrize(
    ("ranks", "backend", "options"),
    [(2, "tensorflow", ()), (4, "tensorflow", ()), (3, "keras", ("over=tensorflow",))],
)
def test_ranks_under_multi_worker_mirrored_strategy(
    tmp_path: Path, ranks: int, backend: str, options: tuple[str, ...]
) -> None:
    facts = steps(tmp_path, ranks, backend, *options)
    assert facts["class"].startswith(STRATEGIES["MultiWorkerMirroredStrategy"])
    assert facts["replicas"] == ranks
    assert facts["described"]["parallelism"] == "tf.distribute.MultiWorkerMirroredStrategy"


def test_devices_of_one_process_under_mirrored_strategy(tmp_path: Path) -> None:
    facts = steps(tmp_path, 1, "tensorflow", "devices=3")
    assert facts["class"].startswith(STRATEGIES["MirroredStrategy"])
    assert facts["replicas"] == 3
    assert [device.rpartition(":")[2] for device in facts["described"]["devices"]] == ["0", "1", "2"]


def test_keras_over_torch_under_ddp(tmp_path: Path) -> None:
    facts = steps(tmp_path, 3, "keras", "over=torch")
    assert facts["class"] == "torch.nn.parallel.distributed.DistributedDataParallel"
