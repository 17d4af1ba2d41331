"""The plain PyTorch script by itself; that its arithmetic is ours is tested in tests/parity/test_plain_torch.py."""

from __future__ import annotations

import ast
import json
import socket
import sys
from pathlib import Path

import pytest

from tests.support.mpi import REPOSITORY, RankRun, run_ranks, run_session

SCRIPT = REPOSITORY / "jobs" / "plain" / "torch_script.py"
ROWS = 203


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    with open(REPOSITORY / "data" / "train.csv", encoding="utf-8") as stream:
        path.write_text("".join(next(stream) for _ in range(1 + ROWS)), encoding="utf-8")
    return path


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def test_it_imports_nothing_of_ours() -> None:
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported >= {"torch", "torch.nn.parallel"}
    assert not [name for name in imported if name and name.split(".")[0] == "hpcnn"]


@pytest.mark.parametrize("tuning", [[], ["--tuned"], ["--tuned", "allocator"], ["--tuned", "channels_last"]])
def test_it_learns_and_leaves_its_settings_and_times(train: Path, tmp_path: Path, tuning: list[str]) -> None:
    out = tmp_path / "found.json"
    flags = ["--train", str(train), "--test", str(train), "--epochs", "3", "--batch", "10", "--threads", "1"]
    run = run_session([sys.executable, str(SCRIPT), *flags, *tuning, "--json", str(out)])
    assert run.returncode == 0, run.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert (found["rows"], found["ranks"], found["threads"], found["settings"]["batch"]) == (ROWS, 1, 1, 10)
    assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2, 3]
    assert all(epoch["rows_per_second"] == ROWS / epoch["seconds"] for epoch in found["epochs"])
    assert found["epochs"][-1]["loss"] < found["epochs"][0]["loss"]
    assert found["test_accuracy"] > 0.3  # chance is 0.1


def test_both_launchers_start_the_same_distributed_training(train: Path, tmp_path: Path) -> None:
    def flags(name: str) -> list[str]:
        return ["--ddp", "--train", str(train), "--epochs", "1", "--batch", "37", "--threads", "1",
                "--json", str(tmp_path / name)]  # fmt: skip

    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    runs: list[RankRun] = [
        run_ranks(2, [str(SCRIPT), *flags("mpirun")], env={"MASTER_PORT": free_port()}),
        run_session([sys.executable, *torchrun, str(SCRIPT), *flags("torchrun")]),
    ]
    for run in runs:
        assert run.returncode == 0, run.stderr
    found = [json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("mpirun", "torchrun")]
    assert [one["ranks"] for one in found] == [2, 2]
    assert found[0]["epochs"][0]["loss"] == pytest.approx(found[1]["epochs"][0]["loss"], rel=1e-5)


def test_a_replay_without_a_place_for_its_results_is_refused(train: Path) -> None:
    run = run_session([sys.executable, str(SCRIPT), "--train", str(train), "--replay", "some.npz"])
    assert run.returncode == 2
    assert "--replay and --out belong together" in run.stderr
