"""N singletons, the wrong launcher, refusals before and after MPI is open: said once, in one line, with the way out."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hpcnn.cluster.launch import check_size, launched_together, promised_size
from hpcnn.errors import LaunchError
from tests.support.mpi import REPOSITORY, SETTINGS, run_ranks, run_session

TRAIN = ["-m", "hpcnn", "train", "--train", "data/train.csv"]


@pytest.mark.parametrize(
    ("environ", "promise"),
    [
        ({}, None),
        ({"SLURM_NTASKS": "4"}, (4, "SLURM_NTASKS")),
        ({"SLURM_NTASKS": "8", "OMPI_COMM_WORLD_SIZE": "4"}, (4, "OMPI_COMM_WORLD_SIZE")),
        ({"SLURM_NTASKS": "8", "PMI_SIZE": "2"}, (2, "PMI_SIZE")),
        ({"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2"}, (2, "SLURM_STEP_NUM_TASKS")),
        ({"SLURM_NTASKS": "many"}, None),
    ],
)
def test_the_launcher_nearest_to_the_process_makes_the_promise(environ: dict[str, str], promise: object) -> None:
    assert promised_size(environ) == promise


@pytest.mark.parametrize("name", ["SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_a_promise_that_the_communicator_does_not_keep_is_refused(name: str) -> None:
    with pytest.raises(LaunchError, match=rf"{name} promises 4 .* MPI sees 1.*mpirun"):
        check_size({name: "4"}, 1, "data")
    with pytest.raises(LaunchError, match=rf"{name} promises 4 .* MPI sees 2"):
        check_size({name: "4"}, 2, "data")
    check_size({name: "4"}, 4, "data")


def test_one_single_process_in_a_job_script_passes_but_not_as_a_step_of_many() -> None:
    check_size({"SLURM_NTASKS": "4"}, 1, "single")
    with pytest.raises(LaunchError, match="train alone"):
        check_size({"SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}, 1, "single")


def test_ranks_of_one_launcher_know_each_other_before_mpi() -> None:
    together = launched_together({"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "2", "SLURM_PROCID": "0"})
    assert together is not None
    assert (together.rank, together.size) == (2, 3)
    # MPICH's mpirun inside a Slurm allocation, which starts one proxy a node by srun
    inside = {"PMI_SIZE": "2", "PMI_RANK": "1", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "2"}
    together = launched_together(inside)
    assert together is not None
    assert (together.rank, together.size) == (1, 2)
    assert launched_together({}) is None
    assert launched_together({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}) is None


@pytest.mark.parametrize("name", ["SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_a_singleton_that_was_promised_company_refuses_to_train(name: str) -> None:
    run = run_session([sys.executable, *TRAIN, "--out", "/nonexistent"], env={**SETTINGS, name: "4"})
    assert run.returncode == 1
    assert run.stderr.startswith(f"hpcnn: {name} promises 4 processes, but MPI sees 1")
    assert len(run.stderr.splitlines()) == 1


def test_a_missing_mpi_library_is_one_line() -> None:
    program = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "from hpcnn.cli import main; sys.exit(main(['train', '--train', 'data/train.csv']))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("hpcnn: MPI cannot be loaded")
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epochs", "many"], "--epochs takes a whole number, not 'many'"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--train", "nowhere.csv"], "nowhere.csv: no such file"),
        (["--logical-shards", "1"], "1 logical shard"),
        (["--strategy", "single"], "--strategy single is one process"),
        (["--grid", "dp=5"], "--grid dp=5"),
        (["--network", "nothing"], "network 'nothing' is unknown"),
    ],
)
def test_what_all_ranks_refuse_is_said_once(ranks: int, flags: list[str], words: str) -> None:
    run = run_ranks(ranks, [*TRAIN, "--out", "/nonexistent/folder", "--threads", "1", *flags], timeout=60)
    assert run.returncode != 0
    ours = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert len(ours) == 1
    assert words in ours[0]
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
