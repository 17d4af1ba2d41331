"""A completed run is read to the bit; anything else is one line that says which, what and where last seen."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ResultsError
from hpcnn.records.evidence import SeenReplica, SeenRow
from hpcnn.records.files import write_csv
from hpcnn.records.run_folder import LOSS_COLUMNS, LossRow, RunFolder
from hpcnn.studies.reading import epochs_of, read_run
from hpcnn.studies.tables import numbers, read_table
from tests.studies.made_runs import BATCH, ROWS, STEPS, curve, make_run, write_run

BEAT: dict[str, Any] = {
    "rank": 0, "host": "node1", "interval": 2.0, "state": "running", "operation": "backward", "epoch": 2, "step": 17,
    "words": "",
}  # fmt: skip


def refusal(folder: Path) -> str:
    with pytest.raises(ResultsError) as error:
        read_run(folder)
    message = str(error.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def edited(path: Path, line: int, cells: dict[int, str] | None) -> None:
    """Change cells of `line` (from 1) by place, or take the line out."""
    lines = path.read_text().splitlines()
    if cells is None:
        del lines[line - 1]
    else:
        parts = lines[line - 1].split(",")
        for place, cell in cells.items():
            parts[place] = cell
        lines[line - 1] = ",".join(parts)
    path.write_text("\n".join(lines) + "\n")


def test_a_run_reads_back_as_it_was_written(tmp_path: Path) -> None:
    rows = curve()
    folder = write_run(tmp_path, "one", rows, ranks=3, predictions=[3, 1, 4])
    run = read_run(folder)
    assert (run.name, run.ranks, run.steps, run.first_step, run.last_step) == ("one", 3, 36, 0, 35)
    for name in LOSS_COLUMNS[1:]:
        expected = [math.nan if getattr(row, name) is None else getattr(row, name) for row in rows]
        assert np.array_equal(run.losses[name], np.array(expected, dtype=np.float64), equal_nan=True)
    assert run.seconds == {
        (0, "forward"): 1.5, (0, "wait"): 1.5, (1, "forward"): 3.0, (1, "wait"): 3.0, (2, "forward"): 4.5,
        (2, "wait"): 4.5,
    }  # fmt: skip
    assert run.hosts == {0: "node0", 1: "node0", 2: "node1"}
    assert run.predictions == {"1": "3", "2": "1", "3": "4"}
    assert run.config["global_batch"] == BATCH


def test_a_run_without_a_test_file_has_no_predictions(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "one", curve()))
    assert run.predictions is None
    assert run.tested == {}


def test_a_run_of_no_epoch_has_no_steps(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "one", [], predictions=[1]))
    assert (run.steps, run.first_step, run.last_step) == (0, None, None)
    assert epochs_of(run) == []


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=5))
def test_numbers_are_read_to_the_bit_as_they_were_written(values: list[float]) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        write_csv(path, ["value"], ([value] for value in values))
        found = numbers(path, read_table(path, ["value"]), "value")
    assert found.tobytes() == np.array(values).tobytes()


def test_a_run_that_was_resumed_with_nothing_left_to_do_has_no_steps(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "one", [], settings={"resume": "results/one"}, facts={"steps": 36}, predictions=[1])
    assert read_run(folder).steps == 0


def test_means_of_an_epoch_count_each_step_by_its_rows() -> None:
    rows = [
        LossRow(1, 0, 50, 1e-3, 2.0, 0.5, 1.0),
        LossRow(1, 1, 60, 1e-3, 8.0, 1.0, 1.0, 0.5, 0.25),
        LossRow(2, 2, 110, 1e-3, 3.0, 0.5, 1.0),
    ]
    first, second = epochs_of(make_run("x", rows))
    assert (first.epoch, first.rows, second.rows) == (1, 60, 50)
    assert first.loss == pytest.approx((50 * 2 + 10 * 8) / 60, rel=1e-15)
    assert first.accuracy == pytest.approx((25 + 10) / 60, rel=1e-15)
    assert (first.validation_loss, first.validation_accuracy) == (0.5, 0.25)
    assert math.isnan(second.validation_loss)
    assert second.loss == 3.0


def test_epochs_of_a_run_that_was_resumed_count_its_own_rows_only() -> None:
    later = [row for row in curve() if row.epoch >= 2]
    assert [(one.epoch, one.rows) for one in epochs_of(make_run("x", later))] == [(2, ROWS), (3, ROWS)]


def test_a_folder_that_is_missing_or_no_run_is_refused(tmp_path: Path) -> None:
    assert "is" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "none")


def test_a_run_that_still_runs_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "one", curve(), facts={"state": "running"})
    (folder / "ranks" / "r0.json").write_text(json.dumps({**BEAT, "time": time.time()}))
    assert "not completed but running" in refusal(folder)


def test_a_run_that_died_is_refused_with_where_it_was_last_seen(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "one", curve(), facts={"state": "running"})
    (folder / "ranks" / "r0.json").write_text(json.dumps({**BEAT, "time": time.time() - 100}))
    message = refusal(folder)
    assert "not completed but died: last seen: rank 0 on node1, backward, epoch 2, step 17" in message


def test_a_run_that_failed_is_refused_with_its_words(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "one", curve(), facts={"state": "failed", "words": "rank 2: out of memory"})
    assert "not completed but failed: rank 2: out of memory" in refusal(folder)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"config": None}, "no settings under 'config'"),
        ({"ranks": 0}, "'ranks' is 0"),
        ({"ranks": "4"}, "'ranks' is '4'"),
        ({"state": None}, "not completed but None"),
    ],
)
def test_a_manifest_without_its_facts_is_refused(tmp_path: Path, facts: dict[str, Any], words: str) -> None:
    assert words in refusal(write_run(tmp_path, "one", curve(), facts=facts))


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "one", curve())
    (folder / "run.json").write_text('{"state": "comp')
    assert "run.json: cannot be read" in refusal(folder)


@pytest.mark.parametrize("name", ["loss.csv", "timing.csv"])
def test_a_table_that_is_missing_empty_or_no_text_is_refused(tmp_path: Path, name: str) -> None:
    path = write_run(tmp_path, "one", curve()) / name
    path.unlink()
    assert f"{name}: no such file" in refusal(path.parent)
    path.write_text("")
    assert f"{name}: cut off in line 1" in refusal(path.parent)
    path.write_text("\n")
    assert f"{name}: " in refusal(path.parent)
    path.write_bytes(b"\xff\xfe\x00\n")
    assert f"{name}: is not a table" in refusal(path.parent)
    path.unlink()
    path.mkdir()
    assert f"{name}: cannot be read: Is a directory" in refusal(path.parent)


@pytest.mark.parametrize("name", ["loss.csv", "timing.csv", "predictions.csv"])
def test_a_table_cut_off_anywhere_is_refused(tmp_path: Path, name: str) -> None:
    path = write_run(tmp_path, "one", curve(), predictions=list(range(100))) / name
    whole = path.read_bytes()
    if name != "loss.csv":
        cuts = [1, len(whole) // 2, len(whole) - 1]
    else:
        cuts = [*range(1, len(whole), 97), len(whole) - 1]  # a cut at the end of a line too: run.json tells the steps
        cuts += [place for place, byte in enumerate(whole[:-1], start=1) if byte == ord("\n")]
    for cut in cuts:
        path.write_bytes(whole[:cut])
        assert name in refusal(path.parent)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write_run(tmp_path, "one", curve()) / "loss.csv"
    path.write_text(path.read_text().replace("gradient_norm", "grad_norm"))
    assert "loss.csv: has no column 'gradient_norm'; its columns are run, epoch, step" in refusal(path.parent)


@pytest.mark.parametrize(
    ("name", "line", "cells", "words"),
    [
        ("loss.csv", 5, {5: "abc"}, "line 5, column train_loss: 'abc' is not a number"),
        ("loss.csv", 5, {5: ""}, "line 5, column train_loss: '' is not a number"),
        ("loss.csv", 13, {8: "x"}, "line 13, column validation_loss: 'x' is not a number"),
        ("loss.csv", 2, {2: "-1"}, "line 2, column step: '-1' is not a count"),
        ("loss.csv", 2, {1: "1.5"}, "line 2, column epoch: '1.5' is not a count"),
        ("loss.csv", 2, {3: "nan"}, "line 2, column samples: 'nan' is not a count"),
        ("loss.csv", 6, None, "line 6, column step: does not follow the line before"),
        ("loss.csv", 6, {2: "3"}, "line 6, column step: does not follow"),
        ("loss.csv", 6, {3: "7"}, "line 6, column samples: does not follow"),
        ("loss.csv", 20, {1: "1"}, "line 20, column epoch: does not follow"),
        ("loss.csv", 37, None, "holds steps up to 34, run.json says 35"),
        ("loss.csv", 6, {9: "0.5,1,1"}, "loss.csv: is not a table"),
        ("timing.csv", 2, {6: "?"}, "line 2, column seconds: '?' is not a number"),
        ("timing.csv", 3, {1: "two"}, "line 3, column rank: 'two' is not a number"),
    ],
)
def test_a_damaged_cell_is_named_with_its_line_and_column(
    tmp_path: Path, name: str, line: int, cells: dict[int, str] | None, words: str
) -> None:
    path = write_run(tmp_path, "one", curve()) / name
    edited(path, line, cells)
    message = refusal(path.parent)
    assert message.startswith(str(path))
    assert words in message


def test_lines_that_are_longer_than_the_header_are_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path, "one", curve()) / "timing.csv"
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *(line + ",0" for line in lines)]) + "\n")
    assert "line 2 has more cells than line 1 has names" in refusal(path.parent)


def test_lines_that_are_too_short_are_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path, "one", curve()) / "loss.csv"
    lines = path.read_text().splitlines()
    lines[3] = ",".join(lines[3].split(",")[:6])
    path.write_text("\n".join(lines) + "\n")
    assert "line 4, column train_accuracy: '' is not a number" in refusal(path.parent)


def test_further_columns_do_not_matter(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "one", curve())
    path = folder / "loss.csv"
    path.write_text("\n".join(line + ",x" for line in path.read_text().splitlines()) + "\n")
    assert read_run(folder).steps == 3 * STEPS


def test_what_a_run_saw_reads_back_as_it_was_written(tmp_path: Path) -> None:
    row = SeenRow(
        rank=1, replica=1, stage=0, epoch=2, row=7, features="00ff", label=3, label_before=None, label_after=4,
        mean=0.1, deviation=None, masks="0" * 16, kept=5, units=9,
    )  # fmt: skip
    replica = SeenReplica(
        rank=1, replica=1, stage=0, epoch=2, step=8, gradient_norm=1 / 3, sum_norm=None, share=None, weights="1e5"
    )
    folder = RunFolder(write_run(tmp_path, "one", curve()))
    assert (read_run(folder.path).rows, read_run(folder.path).replicas) == ([], [])  # of a run that left no such tables
    folder.write_evidence([row, row], [replica])
    found = read_run(folder.path)
    assert (found.rows, found.replicas) == ([row, row], [replica])


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("rows.csv", ",3,", ",three,", "line 2, column label: 'three' is no int"),
        ("rows.csv", ",3,", ",,", "line 2, column label: '' is no int"),
        ("rows.csv", "masks", "mask", "has no column 'masks'"),
        ("replicas.csv", "0.5", "half", "line 2, column share: 'half' is no float"),
        ("replicas.csv", "aa\n", "aa", "cut off in line 2"),
    ],
)
def test_damage_in_what_a_run_saw_is_named(tmp_path: Path, name: str, old: str, new: str, words: str) -> None:
    folder = RunFolder(write_run(tmp_path, "one", curve()))
    row = SeenRow(
        rank=0, replica=0, stage=0, epoch=1, row=7, features="ff", label=3, label_before=1, label_after=1, mean=0.1,
        deviation=0.1, masks="00", kept=5, units=9,
    )  # fmt: skip
    replica = SeenReplica(
        rank=0, replica=0, stage=0, epoch=1, step=0, gradient_norm=1.0, sum_norm=1.0, share=0.5, weights="aa"
    )
    folder.write_evidence([row], [replica])
    text = (folder.path / name).read_text()
    assert old in text
    (folder.path / name).write_text(text.replace(old, new, 1))
    assert words in refusal(folder.path)
