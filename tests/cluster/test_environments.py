"""--auto-env: a backend that is elsewhere is started there, in place, alone and on ranks; and where it cannot be."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from hpcnn.cluster.environments import MARK
from tests.env.classic import require_classic
from tests.support.mpi import REPOSITORY, RankRun, run_ranks, run_session

STEPS = ("--train", "data/test.csv", "--epochs", "1", "--max-steps", "2", "--validation-fraction", "0", "--no-progress")


def train(backend: str, out: Path, *flags: str, ranks: int = 1, env: dict[str, str] | None = None) -> RankRun:
    arguments = ["-m", "hpcnn", "train", *STEPS, "--backend", backend, "--out", str(out), "--run-id", "run", *flags]
    if ranks > 1:
        return run_ranks(ranks, arguments, timeout=300, env=env)
    return run_session([sys.executable, *arguments], timeout=300, env=env)


@pytest.fixture
def classic() -> Path:
    return require_classic()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_backend_of_the_other_environment_trains_there(classic: Path, tmp_path: Path, ranks: int) -> None:
    run = train("caffe", tmp_path, "--auto-env", ranks=ranks)
    assert (run.returncode, run.left_behind) == (0, ()), run.stderr
    facts = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert (facts["state"], facts["ranks"], facts["config"]["backend"]) == ("completed", ranks, "caffe")
    assert facts["versions"]["numpy"].startswith("1.23.")
    assert Path(facts["mpi"]["library"]).is_relative_to(classic)


def test_predictions_are_made_there_too(classic: Path, tmp_path: Path) -> None:
    assert train("torch", tmp_path).returncode == 0
    command = ["-m", "hpcnn", "predict", str(tmp_path / "run"), "--data", "data/test.csv", "--backend", "caffe"]
    outs = [str(tmp_path / f"{place}.csv") for place in range(2)]
    here = run_session([sys.executable, *command, "--out", outs[0]])
    assert (here.returncode, here.stdout) == (1, "")
    assert "bash env/with.sh caffe hpcnn ..." in here.stderr
    there = run_session([sys.executable, *command, "--out", outs[1], "--auto-env"])
    assert (there.returncode, there.stderr) == (0, "")
    assert len(Path(outs[1]).read_text(encoding="utf-8").splitlines()) == 1001


def test_a_backend_that_is_here_is_not_started_again(tmp_path: Path) -> None:
    run = train("torch", tmp_path, "--auto-env", env={"HPCNN_ENV_ROOT": str(tmp_path / "nothing")})
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_environment_that_is_not_made_is_said_once(tmp_path: Path, ranks: int) -> None:
    root = tmp_path / "nothing"
    run = train("caffe", tmp_path / "out", "--auto-env", ranks=ranks, env={"HPCNN_ENV_ROOT": str(root)})
    assert run.returncode == 1
    (line,) = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert line.startswith(f"hpcnn: --auto-env: the environment 'classic' isn't made yet ({root}/")
    assert line.endswith("run  bash env/create.sh classic")
    assert not (tmp_path / "out").exists()


def test_a_process_that_was_started_again_is_refused_as_any(tmp_path: Path) -> None:
    run = train("caffe", tmp_path / "out", "--auto-env", env={MARK: "caffe"})
    assert run.returncode == 1
    assert run.stderr.startswith("hpcnn: --backend caffe needs caffe, not installed in this environment: ")
    assert len(run.stderr.splitlines()) == 1


def test_hpcnn_without_its_clone_says_so(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "hpcnn", tmp_path / "hpcnn")
    command = [sys.executable, "-P", "-m", "hpcnn", "train", *STEPS, "--backend", "caffe", "--auto-env"]
    run = run_session(command, env={"PYTHONPATH": str(tmp_path)})
    assert run.returncode == 1
    assert run.stderr.startswith(f"hpcnn: --auto-env: no {tmp_path}/env/with.sh: hpcnn is not run from its clone; ")
    assert "bash env/with.sh caffe hpcnn ..." in run.stderr


def test_keras_on_theano_is_the_default_of_its_word_and_known_by_its_checkpoint(classic: Path, tmp_path: Path) -> None:
    steps = [*STEPS, "--network", "jobs/small_network.toml", "--out", str(tmp_path)]
    for name, word, flags in (
        ("word", "keras-theano", []),
        ("flag", "keras", ["--auto-env", "--keras-backend", "theano"]),
        ("auto", "keras-theano", ["--auto-env"]),
    ):
        run = run_session(
            ["bash", "env/with.sh", word, "hpcnn", "train", *steps, "--run-id", name, *flags], timeout=300
        )
        assert run.returncode == 0, run.stderr
        facts = json.loads((tmp_path / name / "run.json").read_text(encoding="utf-8"))
        assert (facts["config"]["backend"], facts["config"]["backend_option"]) == ("keras", {"backend": "theano"})
        assert facts["versions"]["theano"] == "1.0.5"


@pytest.mark.parametrize("word", ["caffe", "torch"])
def test_the_backends_are_listed_in_either_environment(classic: Path, word: str) -> None:
    run = run_session(["bash", "env/with.sh", word, "hpcnn", "backends"])
    assert (run.returncode, run.stderr) == (0, "")
    states = {line.split()[0]: line for line in run.stdout.splitlines() if not line.startswith(" ")}
    assert len(states) == 7
    ready = {name for name, line in states.items() if line.split()[1] == "ready"}
    assert ready - {"simulated"} == (
        {"keras-theano", "lasagne", "caffe"} if word == "caffe" else {"torch", "tensorflow", "keras"}
    )
