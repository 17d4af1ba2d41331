from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcnn.config import RunConfig
from hpcnn.errors import ConfigError, LaunchError, NetworkError
from hpcnn.training.plan import plan_lines
from tests.mpi.digits import write_digits
from tests.support.mpi import REPOSITORY, SETTINGS, run_session

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def plan(**settings: object) -> list[str]:
    return list(plan_lines(RunConfig(**settings)))  # type: ignore[arg-type]


def columns(lines: list[str], first: str) -> list[dict[str, str]]:
    """A table's rows by its heading; the headings of several words, and the cells, are apart by two blanks."""
    start = next(place for place, line in enumerate(lines) if line.split()[:1] == [first])
    heading = re.split(r"\s{2,}", lines[start].strip())
    rows = []
    for line in lines[start + 1 :]:
        if not line:
            break
        rows.append(dict(zip(heading, re.split(r"\s{2,}", line.strip()), strict=False)))
    return rows


def test_the_readmes_plan_is_what_the_command_prints() -> None:
    command, shown = re.search(r"hpcnn (plan [^\n]*)\n```\n\n```\n(network .*?)^```", README, re.M | re.S).groups()  # type: ignore[union-attr]
    run = run_session([sys.executable, "-m", "hpcnn", *command.split()], env=SETTINGS)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == shown


def test_a_grid_of_replicas_and_stages() -> None:
    lines = plan(strategy="hybrid", grid="dp=2,pp=2", micro_batches=4, global_batch=64, optimizer="sgd", momentum=0.9)
    assert lines[0].startswith("network cnn2d_3layer_fullconnected_3layer, 246,682 parameters, rows of 1x28x28, 10")
    assert lines[1] == "strategy hybrid, schedule 1f1b, grid dp=2,pp=2,tp=1: 4 ranks"
    assert lines[2] == "batch 64: at most 32 rows a replica, in 4 micro-batches of at most 8"
    stages = columns(lines, "segment")
    assert [row["parameters"] for row in stages] == ["14,192", "232,490"]
    assert sum(float(row["share"].removesuffix("%")) for row in stages) == pytest.approx(100, abs=0.1)
    assert "the other replica does the same" in lines
    memory = columns(lines, "ranks")
    assert [row["ranks"] for row in memory] == ["0, 2", "1, 3"]
    assert [row["slots"] for row in memory] == ["2", "1"]
    for row in memory:
        parts = [float(row[name]) for name in ("weights", "gradient", "optimizer", "activations", "messages")]
        assert float(row["sum"]) == pytest.approx(sum(parts), abs=0.003)
        assert row["weights"] == row["gradient"] == row["optimizer"]  # momentum: one vector beside them


def test_memory_is_counted_by_hand() -> None:
    """Two stages of 1f1b: the first has two slots of five rows, the second one."""
    lines = plan(strategy="pipeline", grid="pp=2", stages="dense1", micro_batches=2, global_batch=10)
    first, second = columns(lines, "ranks")
    # conv1 relu1 conv2 relu2 pool1 conv3 relu3 pool2 flatten, floats a row
    floats = 2 * 32 * 784 + 2 * 48 * 784 + 48 * 196 + 2 * 32 * 196 + 2 * 32 * 49
    assert first["activations"] == f"{2 * 5 * 4 * floats / 1e6:,.3f}"
    assert first["messages"] == f"{5 * 4 * 2 * 1568 / 1e6:,.3f}"
    dense = 3 * 128 + 3 * 128 + 2 * 10
    assert second["activations"] == f"{5 * 4 * dense / 1e6:,.3f}"
    assert second["messages"] == f"{5 * 4 * 2 * 1568 / 1e6:,.3f}"
    assert second["optimizer"] == f"{2 * 4 * (200832 + 16512 + 1290) / 1e6:,.3f}"  # adam: two moments


def test_the_bubble_is_the_papers_and_the_cuts_own_is_larger() -> None:
    (line,) = (line for line in plan(strategy="pipeline", grid="pp=4", micro_batches=8) if line.startswith("bubble"))
    equal, cut = (float(number) for number in re.findall(r"([\d.]+)%", line))
    assert equal == pytest.approx(100 * 3 / 11, abs=0.05)
    assert cut > equal


def test_without_stages_the_network_is_one_segment() -> None:
    lines = plan()
    assert lines[1] == "strategy data, grid dp=1,pp=1,tp=1: 1 rank"
    assert [row["layers"] for row in columns(lines, "segment")] == ["conv1 to softmax"]
    assert not any(line.startswith("bubble") for line in lines)


def test_a_file_says_shape_classes_and_rows(tmp_path: Path) -> None:
    lines = plan(train=str(write_digits(tmp_path, 30)), strategy="pipeline", grid="pp=2", global_batch=50)
    assert "rows of 1x28x28, 10 classes" in lines[0]
    assert lines[2].startswith("batch 50: 30 rows a replica")


def test_a_replica_may_get_more_than_its_share_of_a_batch() -> None:
    """Three logical shards for two replicas: of a batch of four rows, the second replica's two shards get three."""
    lines = plan(grid="dp=2", global_batch=4, logical_shards=3)
    assert lines[2] == "batch 4: at most 3 rows a replica, in 1 micro-batch of at most 3"


def test_other_shapes_and_networks() -> None:
    lines = plan(input_shape="3,32,32", classes=7, network="cnn2d_2layer_fullconnected_2layer")
    assert "rows of 3x32x32, 7 classes" in lines[0]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"strategy": "pipeline"}, ConfigError, "give --grid pp=4"),
        ({"strategy": "pipeline", "grid": "pp=2", "balance": "measured"}, ConfigError, "plan with --balance flops"),
        ({"strategy": "pipeline", "grid": "pp=two"}, ConfigError, "--grid 'pp=two'"),
        ({"strategy": "data", "grid": "pp=2"}, LaunchError, "give dp=2"),
        ({"strategy": "pipeline", "grid": "pp=99"}, LaunchError, "can be cut into 1 to"),
        ({"strategy": "pipeline", "grid": "pp=2", "stages": "conv9"}, ConfigError, "no layer 'conv9'"),
        ({"grid": "dp=65"}, LaunchError, "65 replicas for 50 logical shards"),
        ({"network": "none"}, NetworkError, "network 'none' is unknown"),
    ],
)
def test_what_no_run_could_do_is_refused(settings: dict[str, str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        plan(**settings)


def test_a_plan_needs_no_framework_and_no_mpi() -> None:
    run = subprocess.run(
        [
            sys.executable, "-m", "tests.support.without",
            "torch,tensorflow,keras,jax,theano,lasagne,caffe,mpi4py",
            "plan", "--strategy", "pipeline", "--grid", "pp=2", "--train", "data/test.csv",
        ],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("network ")
