"""The folder of a run: names never used twice, columns that scripts rely on, values that read back to the bit."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hpcnn.errors import ResultsError
from hpcnn.records.phases import Tally
from hpcnn.records.run_folder import LossRow, RankTimes, RunFolder, run_name
from tests.support.mpi import REPOSITORY

RACER = """
import sys, time
from pathlib import Path
from hpcnn.errors import ResultsError
from hpcnn.records.run_folder import RunFolder
out, run_id, count = Path(sys.argv[1]), sys.argv[2] or None, int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(count):
    try:
        print(RunFolder.create(out, "name", run_id).path, flush=True)
    except ResultsError as error:
        print("refused:", error, flush=True)
"""


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def race(out: Path, run_id: str, count: int, racers: int = 3) -> list[str]:
    """What processes print that ask for folders at the same moment, `count` times each."""
    command = [sys.executable, "-c", RACER, str(out), run_id, str(count)]
    processes = [
        subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(racers)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [line for process in processes for line in process.communicate(timeout=60)[0].splitlines()]


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as stream:
        return list(csv.reader(stream))


def test_a_name_is_readable_and_counts_up(tmp_path: Path) -> None:
    name = run_name("net", "torch", "data", 4, "abc1234")
    folders = [RunFolder.create(tmp_path / "results", name, None) for _ in range(3)]
    assert [folder.run for folder in folders] == [f"net_torch_data_np4_abc1234_{number:03d}" for number in (1, 2, 3)]
    assert all((folder.path / "ranks").is_dir() for folder in folders)


def test_a_folder_that_was_deleted_in_between_leaves_a_gap_that_is_filled_but_none_is_taken(tmp_path: Path) -> None:
    first, second = (RunFolder.create(tmp_path, "x", None) for _ in range(2))
    (second.path / "run.json").write_text("kept")
    (first.path / "ranks").rmdir()
    first.path.rmdir()
    assert [RunFolder.create(tmp_path, "x", None).run for _ in range(2)] == ["x_001", "x_003"]
    assert (second.path / "run.json").read_text() == "kept"


def test_processes_that_race_for_a_name_get_one_folder_each(tmp_path: Path) -> None:
    found = race(tmp_path, "", count=20)
    assert sorted(found) == [str(tmp_path / f"name_{number:03d}") for number in range(1, 61)]


def test_processes_that_race_for_one_run_id_leave_one_winner(tmp_path: Path) -> None:
    found = race(tmp_path, "mine", count=1)
    assert sorted(found)[0] == str(tmp_path / "mine")
    refused = f"refused: {tmp_path / 'mine'}: exists already; give another --run-id, results are never overwritten"
    assert sorted(found)[1:] == [refused] * 2


def test_processes_of_one_job_that_race_get_the_jobs_number_and_then_a_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    found = race(tmp_path, "", count=2, racers=2)
    names = ["name_job77", "name_job77_001", "name_job77_002", "name_job77_003"]
    assert sorted(found) == [str(tmp_path / name) for name in names]


def test_a_run_id_that_exists_is_refused_and_its_files_stay(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, "x", "mine").write_manifest(state="completed")
    with pytest.raises(ResultsError, match="mine: exists already; give another --run-id"):
        RunFolder.create(tmp_path, "x", "mine")
    assert json.loads((tmp_path / "mine" / "run.json").read_text()) == {"state": "completed"}


def test_a_folder_that_cannot_be_made_is_one_line_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out, words in ((tmp_path / "file", "File exists"), (tmp_path / "file" / "below", "Not a directory")):
        with pytest.raises(ResultsError, match=f"cannot be made: {words}; choose another --out") as error:
            RunFolder.create(out, "x", None)
        assert str(error.value).startswith(str(tmp_path / "file"))
        assert "\n" not in str(error.value)


def test_the_columns_are_those_that_scripts_read(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "x", "r")
    folder.write_losses([])
    folder.write_timing([])
    folder.write_layers([])
    folder.write_predictions([])
    folder.write_evidence([], [])
    names = ("loss.csv", "timing.csv", "layers.csv", "rows.csv", "replicas.csv")
    heads = {name: ",".join(rows_of(folder.path / name)[0]) for name in names}
    assert heads == {
        "loss.csv": "run,epoch,step,samples,learning_rate,train_loss,train_accuracy,gradient_norm,"
        "validation_loss,validation_accuracy",
        "timing.csv": "run,rank,host,epoch,phase,count,seconds,minimum,maximum,bytes,hidden_seconds",
        "layers.csv": "layer,parameters,gradient_bytes,flops,forward_seconds,backward_seconds",
        "rows.csv": "run,rank,replica,stage,epoch,row,features,label,label_before,label_after,mean,deviation,masks,"
        "kept,units",
        "replicas.csv": "run,rank,replica,stage,epoch,step,gradient_norm,sum_norm,share,weights",
    }
    assert (folder.path / "predictions.csv").read_text() == "ImageId,Label\n"


def test_losses_times_and_predictions_stand_in_their_files_as_they_were_given(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "x", "r")
    folder.write_losses(
        [LossRow(1, 0, 50, 1e-3, 0.1 + 0.2, 0.5, 1 / 3), LossRow(1, 1, 99, 1e-3, 2.0, 1.0, 0.0, 0.25, 1.0)]
    )
    tally = Tally()
    tally.add(0.25, 8)
    tally.add(0.5, 8)
    folder.write_timing([RankTimes(1, "node1", 2.0, [(1, "communicate", tally)])])
    folder.write_predictions([7, 2])
    assert rows_of(folder.path / "loss.csv")[1:] == [
        ["r", "1", "0", "50", "0.001", "0.30000000000000004", "0.5", "0.3333333333333333", "", ""],
        ["r", "1", "1", "99", "0.001", "2.0", "1.0", "0.0", "0.25", "1.0"],
    ]
    assert rows_of(folder.path / "timing.csv")[1:] == [
        ["r", "1", "node1", "1", "communicate", "2", "0.75", "0.25", "0.5", "16", "0.0"]
    ]
    assert (folder.path / "predictions.csv").read_text() == "ImageId,Label\n1,7\n2,2\n"


def test_the_manifest_is_written_with_what_changed(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "x", "r")
    folder.write_manifest(run="r", state="running")
    folder.write_manifest(state="completed")
    assert json.loads((folder.path / "run.json").read_text()) == {"run": "r", "state": "completed"}
