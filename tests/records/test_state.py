"""The state of a run as its files tell it, damaged ones included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcnn.errors import ResultsError
from hpcnn.records.state import RunState, read_json, read_state

BEAT: dict[str, Any] = {
    "rank": 0, "host": "node1", "pid": 1, "interval": 2.0, "state": "running", "operation": "step", "epoch": 1,
    "step": 5, "since": 90.0, "words": "", "time": 100.0,
}  # fmt: skip


def run(folder: Path, manifest: Any, *beats: dict[str, Any]) -> Path:
    (folder / "ranks").mkdir()
    (folder / "run.json").write_text(json.dumps(manifest))
    for rank, changes in enumerate(beats):
        (folder / "ranks" / f"r{rank}.json").write_text(json.dumps({**BEAT, "rank": rank, **changes}))
    return folder


@pytest.mark.parametrize("state", ["completed", "failed", "stopped"])
def test_a_run_that_ended_is_what_run_json_says_whatever_beats_say(tmp_path: Path, state: str) -> None:
    folder = run(tmp_path, {"state": state, "words": "as it was"}, {"time": 0.0})
    assert read_state(folder, now=1e9) == RunState(state, "as it was")


def test_beats_may_be_late_by_five_of_their_own_intervals(tmp_path: Path) -> None:
    folder = run(tmp_path, {"state": "running"}, {}, {"interval": 4.0})
    assert read_state(folder, now=110.0).state == "running"
    state = read_state(folder, now=110.1)
    assert (state.state, state.rank) == ("died", 0)
    assert state.words == "last seen: rank 0 on node1, step, epoch 1, step 5"


def test_the_rank_that_failed_first_is_named_before_those_it_took_with_it(tmp_path: Path) -> None:
    late = {"state": "failed", "words": "later", "time": 103.0}
    first = {"state": "failed", "words": "out of memory", "time": 102.0}
    state = read_state(run(tmp_path, {"state": "running"}, {"time": 0.0}, late, first), now=1e9)
    assert state == RunState("failed", "rank 2 on node1, step, epoch 1, step 5: out of memory", 2)


def test_a_rank_that_was_stopped_stops_the_run(tmp_path: Path) -> None:
    state = read_state(run(tmp_path, {"state": "running"}, {}, {"state": "stopped", "words": "SIGTERM"}), now=101.0)
    assert (state.state, state.rank) == ("stopped", 1)


def test_a_rank_without_last_words_is_told_of_beside_those_that_the_launcher_stopped(tmp_path: Path) -> None:
    killed = {"operation": "step, stage 1, B1.2", "time": 99.0}
    stopped = {"state": "stopped", "words": "stopped by SIGTERM", "time": 101.0}
    folder = run(tmp_path, {"state": "running"}, stopped, killed, stopped)
    assert read_state(folder, now=102.0).words == "rank 0 on node1, step, epoch 1, step 5: stopped by SIGTERM"
    state = read_state(folder, now=1e9)
    assert (state.state, state.rank) == ("stopped", 0)
    assert state.words.endswith(
        "(without last words, last seen: rank 1 on node1, step, stage 1, B1.2, epoch 1, step 5)"
    )


def test_a_run_without_any_beat_died(tmp_path: Path) -> None:
    assert read_state(run(tmp_path, {"state": "running"}), now=0.0) == RunState("died", "no rank left a heartbeat")


def test_a_run_whose_ranks_all_completed_but_which_never_said_so_died(tmp_path: Path) -> None:
    folder = run(tmp_path, {"state": "running"}, {"state": "completed"}, {"state": "completed", "time": 101.0})
    assert read_state(folder, now=105.0).state == "running"
    assert read_state(folder, now=1e9).state == "died"


@pytest.mark.parametrize("key", ["rank", "epoch", "step", "time", "interval"])
def test_a_damaged_beat_is_one_line_with_its_place(tmp_path: Path, key: str) -> None:
    folder = run(tmp_path, {"state": "running"}, {}, {key: "x"})
    with pytest.raises(ResultsError, match=rf"r1\.json: is not a heartbeat: '{key}' is 'x', not a number"):
        read_state(folder, now=100.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read"),
        ('{"state": "run', "cannot be read"),
        ("[1]", "is not a JSON object"),
        ("\x00", "cannot be"),
    ],
)
def test_a_damaged_manifest_is_one_line_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=words) as error:
        read_state(tmp_path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_folder_that_is_no_run_is_refused_with_a_question(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"run\.json: no such file; is .* the folder of a run\?"):
        read_state(tmp_path)
    with pytest.raises(ResultsError, match=r"is not valid|cannot be read"):
        read_json(tmp_path)
