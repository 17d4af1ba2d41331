"""Every command of the README is run by a test, as it stands there; figures come from files under results/."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.env.classic import require_classic
from tests.support.mpi import REPOSITORY, run_session

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")

# Run elsewhere, and where; each of those tests takes its command from this table.
ELSEWHERE = {
    "bash env/demo.sh": "tests/env/test_demo.py",
    "bash env/test.sh": ".ci/run",
    "sbatch jobs/data_parallel.slurm": "tests/slurm/test_data_parallel.py",
    "sbatch --nodes=4 --ntasks-per-node=1 jobs/data_parallel.slurm --epochs 20": "tests/slurm/test_data_parallel.py",
    "sbatch jobs/pipeline.slurm": "tests/slurm/test_data_parallel.py",
    "sbatch jobs/hybrid.slurm --schedule zero-bubble": "tests/slurm/test_data_parallel.py",
}


MADE_RUNS = {
    "alone",
    "pair",
    "four",
    "longer",
    "documented",
    "small",
    "tf",
    "jax",
    "own",
    "xla",
    "caffe",
    "lasagne",
    "theano",
    "stages",
    "whole",
    "slept",
    "ddp",
    "rounded",
    "late",
}
FIVE_LINES = {
    "cnn2d_3layer_fullconnected_3layer_torch_data_np1",
    "cnn2d_3layer_fullconnected_3layer_tensorflow_data_np1",
    "cnn2d_3layer_fullconnected_3layer_keras_tensorflow_data_np2",
}
MADE_FILES = {"predictions.csv", "by_torch.csv", "digits.h5", "from_caffe.csv"}
QUIET = {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
"""Tests of other processes have the other cores."""
ROWS = 300
"""Of both files; the commands are tried, not what is learnt."""
# What its commands make.
MADE = {"results/RUN/", "results/predictions.csv"}


@pytest.fixture
def classic() -> None:
    require_classic()


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def test_the_readme_has_commands_and_each_that_runs_elsewhere_is_there() -> None:
    assert len(commands()) > 10
    for command, place in ELSEWHERE.items():
        assert command in commands()
        words = command.removeprefix("bash ").split(" ")
        text = (REPOSITORY / place).read_text(encoding="utf-8")
        assert words[0 if words[0] != "sbatch" else -1] in text or "jobs/data_parallel.slurm" in text


def shorten(csv: Path) -> None:
    lines = csv.read_text(encoding="utf-8").splitlines(keepends=True)
    csv.write_text("".join(lines[: 1 + ROWS]), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("classic")
def test_the_readmes_commands_run_in_order_as_they_stand(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(
        REPOSITORY, clone, ignore=shutil.ignore_patterns(".git", "__pycache__", "results", ".hypothesis", "*_cache")
    )
    shorten(clone / "data" / "train.csv")
    shorten(clone / "data" / "test.csv")
    for command in commands():
        if command in ELSEWHERE:
            continue
        run = run_session(["bash", "-c", f"cd {shlex.quote(str(clone))} && {command}"], timeout=300, env=QUIET)
        assert run.returncode == 0, f"{command}\n{run.stdout}\n{run.stderr}"
        assert run.left_behind == ()
    # runs that were not named: all but the hash of the settings and a counter
    names = {
        path.name if "_np" not in path.name else path.name.rsplit("_", 2)[0] for path in (clone / "results").iterdir()
    }
    assert names == MADE_RUNS | MADE_FILES | FIVE_LINES
    assert len((clone / "results" / "predictions.csv").read_text().splitlines()) == 1 + ROWS


def test_files_and_folders_that_the_readme_names_exist() -> None:
    names = re.findall(r"`((?:env|jobs|data|results|tests)/[\w./-]+)`", README)
    missing = [name for name in names if not (REPOSITORY / name).exists() and name not in MADE]
    assert missing == []


def test_the_python_example_is_the_shipped_file() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert example == (REPOSITORY / "jobs" / "five_lines.py").read_text(encoding="utf-8")


def test_the_toml_example_is_the_shipped_file() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    shipped = (REPOSITORY / "jobs" / "small_network.toml").read_text(encoding="utf-8")
    assert example in shipped
