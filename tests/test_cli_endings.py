"""How the command ends before its time: a reader that has gone, Ctrl-C, SIGTERM; quietly, its files in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcnn.records.state import read_state
from tests.mpi.digits import write_digits
from tests.support.mpi import REPOSITORY, SETTINGS, end_session, mpirun, run_ranks, run_session


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), 60)


def with_closed_output(*arguments: object) -> tuple[int, str]:
    """Status and standard error of `hpcnn arguments... | reader` whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        run = subprocess.run(
            [sys.executable, "-m", "hpcnn", *map(str, arguments)],
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
            cwd=REPOSITORY, env={**os.environ, **SETTINGS, "PYTHONUNBUFFERED": ""},
        )  # fmt: skip
    finally:
        os.close(writing)
    return run.returncode, run.stderr


@pytest.mark.parametrize("arguments", [["networks"], ["--help"], ["train", "--help"], ["--version"]])
def test_a_reader_that_has_gone_ends_the_command_in_silence(arguments: list[str]) -> None:
    assert with_closed_output(*arguments) == (1, "")


def test_a_training_whose_reader_has_gone_stops_and_its_files_say_so(digits: Path, tmp_path: Path) -> None:
    status, said = with_closed_output("train", "--train", digits, "--out", tmp_path / "out", "--run-id", "run")
    assert (status, said) == (1, "")
    state = read_state(tmp_path / "out" / "run")
    assert (state.state, state.words) == ("stopped", "stopped by a closed standard output")


def test_without_any_standard_output_the_command_still_works(tmp_path: Path) -> None:
    run = run_session(["sh", "-c", f'exec "{sys.executable}" -m hpcnn networks >&-'])
    assert (run.returncode, run.stderr) == (0, "")


def signalled(folder: Path, digits: Path, number: signal.Signals, ranks: int) -> tuple[int, str]:
    """Status and standard error of a training whose process, or mpirun, got a signal in its third epoch or later."""
    arguments = ["-m", "hpcnn", "train", "--train", str(digits), "--epochs", "10000", "--threads", "1"]
    arguments += ["--out", str(folder), "--run-id", "run"]
    command = [sys.executable, *arguments] if ranks == 1 else list(mpirun(ranks, arguments))
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env={**os.environ, **SETTINGS}, start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 2:"):
                break
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        return process.returncode, said
    finally:
        end_session(process)


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_stops_a_training_with_one_line_and_its_files_say_so(
    digits: Path, tmp_path: Path, number: signal.Signals, name: str
) -> None:
    status, said = signalled(tmp_path, digits, number, 1)
    assert status == 128 + number
    assert said == f"hpcnn: stopped by {name}\n"
    state = read_state(tmp_path / "run")
    assert (state.state, state.words) == ("stopped", f"stopped by {name}")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["end"]
    assert list((tmp_path / "run").rglob("*.tmp")) == []
    assert (tmp_path / "run" / "loss.csv").exists()


def test_ctrl_c_under_mpirun_stops_all_ranks_and_their_files_say_so(digits: Path, tmp_path: Path) -> None:
    status, said = signalled(tmp_path, digits, signal.SIGINT, 2)
    assert status != 0
    assert "Traceback" not in said
    # Either rank may be inside MPI when mpirun ends it, and is then found by its old heartbeat.
    state = read_state(tmp_path / "run", now=time.time() + 60)
    assert state.state in ("stopped", "died")
    assert "rank" in state.words
    assert list((tmp_path / "run").rglob("*.tmp")) == []


def test_a_full_standard_output_is_one_line() -> None:
    run = run_session(["bash", "-c", '"$0" -m hpcnn networks > /dev/full', sys.executable], env=SETTINGS)
    assert run.returncode == 1
    assert run.stderr == "hpcnn: standard output: No space left on device\n"


@pytest.mark.parametrize("verb", [["predict", "r", "--data", "d", "--out", "o"], ["compare", "a", "b"], ["networks"]])
def test_verbs_for_one_process_refuse_to_run_several_times(verb: list[str]) -> None:
    run = run_ranks(2, ["-m", "hpcnn", *verb])
    assert run.returncode != 0
    said = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert len(said) == 1
    assert "OMPI_COMM_WORLD_SIZE says that 2 processes run" in said[0]
    assert run.stdout == ""


def test_a_verb_for_one_process_runs_in_a_job_script_of_many_tasks() -> None:
    run = run_session([sys.executable, "-m", "hpcnn", "backends"], env={**SETTINGS, "SLURM_NTASKS": "4"})
    assert run.returncode == 0


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_training_whose_output_is_full_ends_with_one_line(digits: Path, tmp_path: Path, ranks: int) -> None:
    arguments = ["-m", "hpcnn", "train", "--train", str(digits), "--out", str(tmp_path), "--threads", "1"]
    full = "import sys; sys.stdout = open('/dev/full', 'w'); from hpcnn.cli import main; sys.exit(main(sys.argv[3:]))"
    run = run_ranks(ranks, ["-c", full, *arguments])
    assert run.returncode != 0
    said = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert len(said) == 1
    assert "standard output: No space left on device" in said[0]
    assert "Traceback" not in run.stderr
    (folder,) = tmp_path.iterdir()
    assert read_state(folder).state == "failed"


def test_rows_that_were_trained_before_a_stop_are_in_the_files(digits: Path, tmp_path: Path) -> None:
    place = ["--train", str(digits), "--out", str(tmp_path), "--run-id", "run"]
    # Slow steps: each looks at 50,000 pieces, nearly all without a row.
    slow = ["--global-batch", "1", "--micro-batches", "50000", "--network", "jobs/small_network.toml"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hpcnn", "train", *place, *slow, "--threads", "1", "--epochs", "2"],
        cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        beat = tmp_path / "run" / "ranks" / "r0.json"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (beat.exists() and json.loads(beat.read_text())["step"] > 2):
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    finally:
        end_session(process)
    step = json.loads(beat.read_text())["step"]
    last = (tmp_path / "run" / "loss.csv").read_text().splitlines()[-1]
    assert int(last.split(",")[2]) in (step - 1, step)
    assert f"step {step - 1} " in (tmp_path / "run" / "results.log").read_text()
