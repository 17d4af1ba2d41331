"""The plain PyTorch script on several processes; the rest is in test_plain_script.py."""

from __future__ import annotations

import importlib
import json
import socket
import sys
from pathlib import Path

import pytest

from hpcnn.network.zoo import networks
from tests.support.mpi import REPOSITORY, RankRun, run_ranks, run_session

SCRIPT = REPOSITORY / "jobs" / "plain" / "torch_script.py"


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


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


@pytest.mark.needs("torch")
def test_it_has_the_networks_of_the_zoo(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    for name in ("common", SCRIPT.stem):
        monkeypatch.delitem(sys.modules, name, raising=False)
    script = importlib.import_module(SCRIPT.stem)
    with torch.device("meta"):  # shapes alone
        models = {name: build() for name, build in script.NETWORKS.items()}
    theirs = {name: [value.numel() for value in model.parameters()] for name, model in models.items()}
    architectures = {network.name: network.build((1, 28, 28), 10) for network in networks()}
    ours = {name: [value.size for value in built.parameters] for name, built in architectures.items()}
    assert theirs == ours
