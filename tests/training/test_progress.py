"""A bar where a person looks, on rank 0's terminal alone; nothing in a file or pipe."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from hpcnn.records.run_folder import LossRow
from hpcnn.training.progress import Progress, say, step_line, terminal_columns
from tests.support.mpi import mpirun
from tests.training.results import manifest
from tests.training.terminal import COLUMNS, on_terminal
from tests.training.worlds import Worlds

ROW = LossRow(1, 0, 31, 0.1, 2.30259, 0.125, 0.75)

BAR = """
import sys
from hpcnn.records.run_folder import LossRow
from hpcnn.training.progress import Progress, say
bar = Progress(shown=sys.argv[1] == "shown", epochs=3, steps=21, done=7)
for step in range(7, 14):
    bar.step(LossRow(2, step, 31 * step, 0.1, 2.30259, 0.125, 0.75))
say("epoch 2: loss 2.3026")
bar.close()
"""


def test_a_terminal_shows_a_bar_with_epoch_loss_and_accuracy_and_clears_it_in_the_end() -> None:
    status, shown = on_terminal([sys.executable, "-c", BAR, "shown"])
    assert status == 0
    assert "epoch 2/3" in shown
    assert "loss 2.3026" in shown
    assert "7/21" in shown
    assert shown.rstrip("\r\n ").endswith("]")  # what is last shown is wiped with blanks
    assert max(map(len, shown.split("\r"))) <= COLUMNS


def test_a_line_that_is_said_stands_alone_above_the_bar() -> None:
    _, shown = on_terminal([sys.executable, "-c", BAR, "shown"], stdout=True)
    before, _, after = shown.partition("epoch 2: loss 2.3026\r\n")
    wiped = before.split("\r")[-2]
    assert before.endswith("\r")
    assert wiped.strip() == ""
    assert len(wiped) > 20
    assert "14/21" in after


@pytest.mark.parametrize("stdout", [False, True])
def test_no_bar_is_shown_where_none_is_wanted(stdout: bool) -> None:
    status, shown = on_terminal([sys.executable, "-c", BAR, "hidden"], stdout=stdout)
    assert status == 0
    assert shown == ("epoch 2: loss 2.3026\r\n" if stdout else "")


def train_command(files: Path, out: Path, ranks: int, *flags: str) -> list[str]:
    arguments = [
        "-m", "hpcnn", "train", "--train", str(files / "train.csv"), "--network", str(files / "little.toml"),
        "--global-batch", "31", "--epochs", "1", "--threads", "1", "--out", str(out), *flags,
    ]  # fmt: skip
    return [sys.executable, *arguments] if ranks == 1 else list(mpirun(ranks, arguments))


def test_under_mpirun_rank_0_shows_whole_lines_which_the_launcher_passes_on_at_once(
    files: Path, tmp_path: Path
) -> None:
    # As many steps as take some 15 s; killed as soon as two lines are there, which they are while the run goes on.
    command = train_command(files, tmp_path, 2, "--epochs", "4000")
    _, shown = on_terminal(command, until=lambda text: text.count("steps/s") >= 2)
    first, second = (line for line in shown.replace("\r", "").splitlines() if "steps/s" in line)
    pattern = r"epoch \d+/4000, step (\d+)/28000, loss \d+\.\d{4}, [\d.]+ steps/s, \d+ s left"
    done = [re.fullmatch(pattern, line) for line in (first, second)]
    assert all(done)
    assert int(done[0][1]) < int(done[1][1]) < 28000  # type: ignore[index]
    assert json.loads(next(tmp_path.glob("*/run.json")).read_text())["state"] == "running"


def test_the_flag_keeps_a_terminal_free_of_the_bar(files: Path, tmp_path: Path) -> None:
    status, shown = on_terminal(train_command(files, tmp_path, 1, "--no-progress"))
    assert status == 0
    assert shown == ""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_file_or_pipe_gets_no_bar(worlds: Worlds, files: Path, tmp_path: Path, ranks: int) -> None:
    outcome = worlds.of(ranks).train(
        "--train", files / "train.csv", "--network", files / "little.toml", "--epochs", 1, "--out", tmp_path,
        "--run-id", "run",
    )  # fmt: skip
    assert manifest(tmp_path / "run")["config"]["progress"] is True
    assert [err for _, _, err in outcome.ranks] == [""] * ranks
    assert [out for _, out, _ in outcome.ranks[1:]] == [""] * (ranks - 1)


def test_without_a_terminal_a_bar_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    assert terminal_columns() is None
    bar = Progress(shown=True, epochs=1, steps=1)
    bar.step(ROW)
    bar.close()
    say("a line")
    assert capfd.readouterr() == ("a line\n", "")


def test_a_step_is_a_line_of_the_log_with_validation_where_there_was_one() -> None:
    line = step_line(ROW)
    assert line == (
        "epoch 1 step 0 samples 31 learning_rate 0.1 loss 2.302590 accuracy 0.1250 gradient_norm 0.75"
    )  # fmt: skip
    validated = LossRow(1, 0, 31, 0.1, 2.30259, 0.125, 0.75, 2.25, 0.5)
    assert step_line(validated) == line + " validation_loss 2.250000 validation_accuracy 0.5000"
