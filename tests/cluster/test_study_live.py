"""What a person sees of a study that runs: on a terminal a line that moves, elsewhere a line a cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcnn.cluster.study_live import Live, duration, step_words, steps_in_all
from hpcnn.records.files import write_json
from hpcnn.studies.cells import Cell
from tests.cluster.study_files import command, write_study
from tests.training.terminal import COLUMNS, on_terminal


def cell(name: str, repeat: int) -> Cell:
    settings = {"backend": name, "strategy": "data", "global_batch": 8}
    return Cell(key=f"{name}_r{repeat}", repeat=repeat, ranks=1, settings=settings, state="done")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min"), (3570, "1 h 0 min"), (4810, "1 h 20 min")]
)
def test_times_are_told_roughly(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_time_left_comes_from_repeats_of_a_cell_and_else_from_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("hpcnn.cluster.study_live.time.monotonic", lambda: clock[0])
    cells = [cell(name, repeat) for repeat in (0, 1) for name in ("a", "b", "c")]
    live, left = Live(tmp_path, cells), []
    for one, seconds in zip(cells, (10.0, 20.0, 60.0, 12.0, 20.0, 60.0), strict=True):
        live.begin(one)
        left.append(live.seconds_left(one, 4.0))
        clock[0] += seconds
        live.end(one)
    assert left == [None, 10 - 4 + 4 * 10, 15 - 4 + 10 + 20 + 15, 10 - 4 + 20 + 60, 20 - 4 + 60, 60 - 4]


def test_a_run_tells_its_step_and_loss(tmp_path: Path) -> None:
    assert step_words(tmp_path) == "starting"
    facts = {"config": {"epochs": 3, "max_steps": None}, "steps_per_epoch": 5}
    (tmp_path / "run" / "ranks").mkdir(parents=True)
    write_json(tmp_path / "run" / "run.json", facts)
    assert step_words(tmp_path) == "starting"
    write_json(tmp_path / "run" / "ranks" / "r0.json", {"step": 7, "loss": 0.51234})
    assert step_words(tmp_path) == "step 7/15, loss 0.5123"
    write_json(tmp_path / "run" / "ranks" / "r0.json", {"step": 0, "loss": None})
    assert step_words(tmp_path) == "step 0/15"
    assert steps_in_all({**facts, "config": {"epochs": 3, "max_steps": 4}}) == 4
    assert steps_in_all({}) is None


def test_a_terminal_shows_cells_done_the_step_the_loss_and_the_time_left(tmp_path: Path) -> None:
    study = write_study(tmp_path, '[matrix]\nbackend = "simulated"\n', repeats=2, seconds=0.05)
    moving = re.compile(
        r"\[2/2\] simulated data forward_seconds=0.05, 1 rank, batch 32, repeat 1: "
        r"step \d/6, loss \d+\.\d{4}; about \d+ s left"
    )
    _, shown = on_terminal(command("study", "run", study), until=lambda text: bool(moving.search(text)))
    assert moving.search(shown), shown
    lines = [line for line in re.split(r"\r\x1b\[K|\n|\r", shown) if line]
    assert all(len(line) < COLUMNS for line in lines)
