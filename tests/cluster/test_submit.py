"""What would be submitted, without a Slurm: lines of sbatch from a study and from flags, and what is refused before."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hpcnn.cluster.slurm import Shape
from hpcnn.cluster.study_submit import submit_study
from hpcnn.cluster.submit import find_script, submit_job, train_flags
from hpcnn.errors import ConfigError, LaunchError
from hpcnn.studies.study_file import Slurm
from tests.cluster.study_files import hpcnn, write_study
from tests.support.mpi import REPOSITORY

MATRIX = """
[[matrix]]
backend = "simulated"
reducer = ["mpi", "plain"]
ranks = [1, 6]
threads = [1, 2]
[[matrix]]
backend = "simulated"
strategy = "pipeline"
reducer = "native"
[slurm]
ntasks_per_node = 4
partition = "batch"
time = "00:10:00"
options = ["--exclusive"]
"""


def lines(study: Path, capsys: pytest.CaptureFixture[str], **asked: object) -> list[list[str]]:
    assert submit_study(study, asked=Slurm(**asked), report=True, dry_run=True) == 0
    found = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if line.startswith("sbatch ")]
    assert not (study.parent / "out").exists()
    return found


def test_a_study_is_an_array_a_shape_with_a_task_a_repeat_and_a_report_behind_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = write_study(tmp_path, MATRIX, repeats=3)
    *arrays, report = lines(study, capsys, account="mine", time="1:00")
    shapes = [(1, 1, 1, 1, 1), (1, 2, 1, 1, 2), (6, 1, 2, 4, 1), (6, 2, 2, 4, 2)]
    assert len(arrays) == len(shapes)
    for words, (ranks, threads, nodes, a_node, cores) in zip(arrays, shapes, strict=True):
        assert words == [
            "sbatch", f"--job-name=study-np{ranks}", "--array=0,1,2", f"--nodes={nodes}", f"--ntasks-per-node={a_node}",
            f"--cpus-per-task={cores}", "--partition=batch", "--account=mine", "--time=1:00", f"--ntasks={ranks}",
            "--exclusive", "jobs/study.slurm", str(study), "--ranks", str(ranks), "--threads", str(threads),
        ]  # fmt: skip
    assert "--dependency=afterany:ARRAY1:ARRAY2:ARRAY3:ARRAY4" in report
    assert report[-2:] == ["--wrap", f"bash env/with.sh torch hpcnn study report {study}"]


def test_what_train_would_refuse_is_told_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = write_study(tmp_path, MATRIX.replace("ranks = [1, 6]", "ranks = 2"))
    submit_study(study, asked=Slurm(), report=False, dry_run=True)
    said = capsys.readouterr().out
    assert re.findall("^refused: (.*)", said, re.MULTILINE) == [
        "simulated pipeline 1f1b native forward_seconds=0.001, 1 rank, batch 32: --reducer native, the framework's own "
        "parallelism, is for --strategy data, not for pipeline: leave it out"
    ]
    assert said.count("sbatch ") == 2


def test_without_slurm_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = write_study(tmp_path, MATRIX)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(LaunchError, match="there is no sbatch: is this a machine of a Slurm cluster"):
        submit_study(study, asked=Slurm(), report=True, dry_run=False)
    assert not (tmp_path / "out" / "submitted.json").exists()


def test_a_job_is_a_line_of_sbatch_from_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPOSITORY)
    flags = ["--nodes", "2", "--ntasks-per-node", "1", "--partition", "batch", "--account", "mine", "--time", "10"]
    run = hpcnn(
        "submit", "pipeline", *flags, "--sbatch=--exclusive", "--dry-run", "--schedule", "gpipe", "--epochs", 2,
        "--backend-option", "compile=true", "--trace", "--no-progress",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout == (
        "sbatch --nodes=2 --ntasks-per-node=1 --partition=batch --account=mine --time=10 --exclusive "
        "jobs/pipeline.slurm --backend-option compile=true --schedule gpipe --epochs 2 --trace --no-progress\n"
    )
    assert submit_job("jobs/hybrid.slurm", Shape(), [], dry_run=True) == 0
    assert capsys.readouterr().out == "sbatch jobs/hybrid.slurm\n"


def test_every_script_of_jobs_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    for script in (REPOSITORY / "jobs").glob("*.slurm"):
        if script.stem != "study":
            assert find_script(script.stem) == Path("jobs") / script.name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pipelin"], "no job script 'pipelin': did you mean pipeline? known are baseline_then_compare, data_parallel"),
        (["study"], "a study is submitted by `hpcnn study submit`"),
        (["pipeline", "--scedule", "gpipe"], "--scedule gpipe; did you mean --schedule?"),
        (["pipeline", "--epochs", "many"], "--epochs takes a whole number, not 'many'"),
        (["pipeline", "--schedule", "fast"], "--schedule 'fast' is unknown: choose from"),
        (["pipeline", "--nodes", "0"], "--nodes 0 is out of range: it must be at least 1"),
    ],
)
def test_a_wrong_job_or_flag_is_refused_before_it_is_submitted(arguments: list[str], words: str) -> None:
    run = hpcnn("submit", *arguments, "--dry-run")
    assert run.returncode == 2
    assert words in run.stderr
    assert run.stdout == ""


def test_flags_that_were_not_given_are_left_to_the_script() -> None:
    assert train_flags({"job": "x", "nodes": 3, "epochs": "3", "trace": False}) == ["--epochs", "3", "--no-trace"]
    with pytest.raises(ConfigError, match="--global-batch 0 is out of range"):
        train_flags({"global_batch": "0"})
