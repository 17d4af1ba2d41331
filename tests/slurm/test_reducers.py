"""The mpi reducer across two virtual nodes: in a node first, the same bits on all ranks, whatever the layout of ranks.

Each node has a host name and a /dev/shm of its own, so MPI sends messages between them and shares no memory.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.network.initial import initial_weights
from hpcnn.network.zoo import find_network
from hpcnn.parallel.reducers.wire import FORMATS
from tests.mpi.digits import write_digits
from tests.mpi.tolerances import STEP_0, STEP_5, assert_tensors_near
from tests.parallel.reducers.sums import added, magnitude
from tests.slurm.cluster import CLONE, Cluster
from tests.slurm.sums_on_nodes import LAYOUTS, SIZES, TRAINED, TURNS, WAYS
from tests.slurm.test_data_parallel import the_only_run

ROUNDOFF = 2.0**-24
"""Of float32; the bound of its sums: tests/parallel/reducers/test_reducers.py."""
NODES = 2


@dataclass(frozen=True)
class Found:
    arrays: dict[str, Any]
    facts: dict[str, Any]


@pytest.fixture(scope="module")
def found(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """All of sums_on_nodes.py, in one job."""
    folder = tmp_path_factory.mktemp("nodes")
    csv = write_digits(folder)
    words = ("bash", "env/with.sh", "torch", "mpirun", "-np", "5", "--bind-to", "none",
             "python", "-m", "mpi4py", "-m", "tests.slurm.sums_on_nodes", str(csv), str(folder))  # fmt: skip
    command = f"cd {shlex.quote(str(CLONE))} && OMP_NUM_THREADS=1 {shlex.join(words)}"
    job = cluster.run(folder, "--nodes=2", "--ntasks-per-node=3", "--wrap", command)
    assert job.state == "COMPLETED", str(job)
    with np.load(folder / "arrays.npz") as arrays:
        return Found(dict(arrays), json.loads((folder / "facts.json").read_text(encoding="utf-8")))


def test_three_ranks_are_on_one_node_and_two_on_the_other(found: Found) -> None:
    hosts = found.facts["hosts"]
    assert len(set(hosts)) == NODES
    assert hosts == [hosts[0]] * 3 + [hosts[-1]] * 2


@pytest.mark.parametrize("posted", ["", ", posted"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_ranks_get_the_same_bits_and_the_sum(found: Found, layout: str, way: str, posted: str) -> None:
    name, ranks = f"{layout}, {way}{posted}", len(LAYOUTS[layout])
    algorithm = "flat" if way == "flat" else "nodes"
    assert found.facts[name] == {"equal": True, "algorithm": algorithm, "nodes": NODES}
    rounded = []
    for turn in range(TURNS):
        for size in SIZES:
            total = found.arrays[f"{name}, {turn}, {size}"]
            error = np.abs(total - added(ranks, size, turn))
            exact = (ranks - 1) * ROUNDOFF * magnitude(ranks, size, turn) * 1.01
            assert (error[-2:] <= exact[-2:]).all()  # statistics are never rounded
            assert (error <= exact + rounding(WAYS[way].get("wire"), ranks, size, turn)).all()
            rounded.append((error > exact).any())
    assert any(rounded) == ("wire" in WAYS[way])


def rounding(wire: str | None, ranks: int, size: int, turn: int) -> Any:
    """The bound of hpcnn.parallel.reducers.wire on sums of nodes, whose absolute values are no more than those of what
    ranks brought; below float16's normal range each of a node's rounding and that of the sum are off by 2^-25."""
    if wire is None:
        return 0.0
    u, tiny = FORMATS[wire].roundoff, 2.0**-25 * (NODES + 1) if wire == "float16" else 0.0
    return (u * (1 + u) * magnitude(ranks, size, turn) + u * np.abs(added(ranks, size, turn)) + tiny) * 1.001


@pytest.mark.parametrize("way", TRAINED)
def test_four_ranks_train_what_one_process_trains(found: Found, way: str) -> None:
    architecture = find_network("cnn2d_3layer_fullconnected_3layer").build((1, 28, 28), 10)
    algorithm = "flat" if way == "flat" else "nodes"
    assert found.facts[f"trained, {way}"] == {"equal": True, "algorithm": algorithm, "nodes": NODES}
    gradient, weights = (found.arrays[f"{way}, {what}"] for what in ("gradient", "weights"))
    assert_tensors_near(architecture, gradient, found.arrays["alone, gradient"], STEP_0)
    start = initial_weights(architecture, 1)
    assert_tensors_near(architecture, weights - start, found.arrays["alone, weights"] - start, STEP_5)


def test_a_job_on_two_nodes_says_that_it_adds_in_a_node_first(cluster: Cluster, submit_folder: Path) -> None:
    flags = ("--epochs", "1", "--global-batch", "50", "--reducer", "mpi", "--reducer-option", "wire=bfloat16")
    job = cluster.run(submit_folder, "--nodes=2", "--ntasks-per-node=2", "jobs/data_parallel.slurm", *flags)
    assert job.state == "COMPLETED", str(job)
    manifest = json.loads((the_only_run(submit_folder) / "run.json").read_text(encoding="utf-8"))
    assert (manifest["reducer"]["algorithm"], manifest["reducer"]["nodes"]) == ("nodes", NODES)
