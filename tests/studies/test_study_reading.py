"""What of a study's folder counts: completed runs of their cells, and by name and with its reason what is left out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcnn.errors import ResultsError
from hpcnn.records.files import write_json
from hpcnn.studies.study_reading import read_results
from tests.studies.made_studies import (
    BATCH,
    COMPUTING,
    EPOCHS,
    STEPS,
    WARMUP,
    WORK,
    amdahl,
    cell,
    losses,
    times,
    write_cell,
    write_study,
)

Damage = Callable[[Path], None]


def cut(name: str) -> Damage:
    """Half a file, as a full disk or a copy that was broken off leaves it."""

    def damage(run: Path) -> None:
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[: len(content) // 2])

    return damage


def changed(name: str, old: str, new: str) -> Damage:
    def damage(run: Path) -> None:
        text = (run / name).read_text(encoding="utf-8")
        assert old in text
        (run / name).write_text(text.replace(old, new), encoding="utf-8")

    return damage


def told(**facts: Any) -> Damage:
    """Other facts in run.json."""

    def damage(run: Path) -> None:
        manifest = json.loads((run / "run.json").read_text(encoding="utf-8"))
        manifest["config"] |= facts.pop("config", {})
        write_json(run / "run.json", {**manifest, **facts})

    return damage


def without_rank_1(run: Path) -> None:
    lines = (run / "timing.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "timing.csv").write_text("".join(line for line in lines if ",1,node0," not in line), encoding="utf-8")


DAMAGES: dict[str, tuple[Damage, str]] = {
    "cut losses": (cut("loss.csv"), "loss.csv: cut off in line"),
    "cut times": (cut("timing.csv"), "timing.csv: cut off in line"),
    "no times": (lambda run: (run / "timing.csv").unlink(), "timing.csv: no such file"),
    "cut manifest": (cut("run.json"), "run.json: cannot be read"),
    "no folder": (shutil.rmtree, "run.json: no such file"),
    "died": (told(state="running"), "the run is not completed but died: no rank left a heartbeat"),
    "failed": (told(state="failed", words="out of memory"), "the run is not completed but failed: out of memory"),
    "rows missing": (told(steps=200), "holds steps up to 119, run.json says 199"),
    "a rank missing": (without_rank_1, "timing.csv: has 1 ranks, run.json says 2"),
    "unknown phase": (changed("timing.csv", ",update,", ",refine,"), "'refine' is no phase that this version knows"),
    "no times in epochs": (
        lambda run: (run / "timing.csv").write_text(
            "run,rank,host,epoch,phase,count,seconds,minimum,maximum,bytes,hidden_seconds\n"
            + "".join(f"run,{rank},node0,0,forward,1,1.0,1.0,1.0,0,0.0\n" for rank in (0, 1)),
            encoding="utf-8",
        ),
        "timing.csv: has no time in epochs",
    ),
    "two runs": (changed("loss.csv", "run,3,", "other,3,"), "loss.csv: is of run 'other', run.json of 'run'"),
    "other ranks": (told(ranks=4), "was made with ranks 4, its cell says 2"),
    "other backend": (told(config={"backend": "caffe"}), "was made with backend caffe, its cell says torch"),
    "other batch": (told(config={"global_batch": 7}), f"was made with global_batch 7, its cell says {BATCH}"),
    "other version": (
        told(versions={"hpcnn": "0.0.9", "torch": "2.13.0"}), "was made with hpcnn 0.0.9, most runs with 0.1.0"
    ),
    "other torch": (
        told(versions={"hpcnn": "0.1.0", "torch": "1.0"}), "was made with torch 1.0, most runs with 2.13.0"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of three good runs and one of each damage, in a mixed order."""
    folder = tmp_path_factory.mktemp("study")
    good = [write_cell(folder, cell("good", 2, repeat), times(2, amdahl(0.1)(2))) for repeat in range(3)]
    bad = []
    for place, (name, (damage, _)) in enumerate(DAMAGES.items()):
        made = write_cell(folder, cell(name.replace(" ", "-"), 2, place), times(2, 1.0))
        damage(folder / str(made.run))
        bad.append(made)
    write_study(folder, [*bad[:5], good[0], *bad[5:], *good[1:]])
    return folder


def test_what_is_damaged_half_written_or_of_another_version_is_named_and_left_out(damaged: Path) -> None:
    found = read_results(damaged)
    assert [one.cell.key for one in found.measured] == [f"good_np2_r{repeat}" for repeat in range(3)]
    reasons = {one.cell.key: one.reason for one in found.left_out}
    assert len(reasons) == len(DAMAGES)
    for place, (name, (_, words)) in enumerate(DAMAGES.items()):
        key = f"{name.replace(' ', '-')}_np2_r{place}"
        assert words in reasons[key]
        assert f"runs/{key}/run" in reasons[key], "which folder it is"
        assert str(damaged) not in reasons[key], "wherever the study lies"
        assert "\n" not in reasons[key]


def test_the_figures_of_a_run_leave_out_its_warm_up(damaged: Path) -> None:
    one = read_results(damaged).measured[0]
    seconds = EPOCHS * amdahl(0.1)(2)
    assert one.steps == EPOCHS * STEPS - WARMUP
    assert one.rows == one.steps * BATCH
    assert one.spent.seconds == pytest.approx(seconds)
    assert one.rate == pytest.approx(one.rows / seconds)


def test_cells_that_did_not_run_are_left_out_with_their_states(tmp_path: Path) -> None:
    refused = cell("a", 8, state="refused", reason="8 ranks are more than 4 cores")
    waiting, failed = cell("b", 1, state="waiting"), cell("c", 1, state="failed", reason="exit status 1")
    started = write_cell(tmp_path, cell("d", 1, state="waiting"), times(1, WORK))
    (tmp_path / str(started.run) / "run.json").unlink()
    write_study(tmp_path, [refused, waiting, failed, replace(started, run=None)])
    found = read_results(tmp_path)
    assert not found.measured
    assert [(one.state, one.reason) for one in found.left_out] == [
        ("refused", "8 ranks are more than 4 cores"),
        ("waiting", "was not run yet"),
        ("failed", "exit status 1"),
        ("waiting", "runs/d_np1_r0/run/run.json: no such file; is runs/d_np1_r0/run the folder of a run?"),
    ]


def test_a_damaged_record_of_a_cell_is_none(tmp_path: Path) -> None:
    made = write_cell(tmp_path, cell("a", 1, state="waiting"), times(1, WORK))
    (tmp_path / "runs" / made.key / "cell.json").write_text('{"state": "fai')
    write_study(tmp_path, [replace(made, run=None)])
    assert [one.cell.key for one in read_results(tmp_path).measured] == ["a_np1_r0"], "its run has completed"


def test_a_run_of_nothing_but_warm_up_has_no_figures(tmp_path: Path) -> None:
    made = write_cell(tmp_path, cell("a", 1), times(1, WORK))
    write_study(tmp_path, [made], warmup=EPOCHS * STEPS)
    (left,) = read_results(tmp_path).left_out
    assert "has 120 steps, of which 120 are warm-up: nothing is left to measure" in left.reason


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"cells\.json"):
        read_results(tmp_path)
    (tmp_path / "cells.json").write_text("[]")
    with pytest.raises(ResultsError, match=r"cells\.json"):
        read_results(tmp_path)


def test_notes_tell_of_several_commits_and_of_late_ranks_that_were_not_recorded(tmp_path: Path) -> None:
    cells = [
        write_cell(tmp_path, cell("a", 2, 0), times(2, 1.0)),
        write_cell(tmp_path, cell("a", 2, 1), times(2, 1.0), facts={"commit": "fedcba", "lateness": None}),
    ]
    write_study(tmp_path, cells)
    first, second = read_results(tmp_path).notes
    assert first == "The checkout was at several commits: 0123456789ab, fedcba."
    assert second.startswith("Some runs did not record when their ranks arrived")


def test_who_is_late_and_who_is_starved(tmp_path: Path) -> None:
    slow = {**COMPUTING, "load": 0.3, "backward": 0.3}
    cells = [
        write_cell(tmp_path, cell("late", 4), times(4, 1.0, late=2, waiting=0.2), rows=losses()),
        write_cell(tmp_path, cell("even", 4), times(4, 1.0)),
        write_cell(tmp_path, cell("loads", 4), times(4, 1.0, computing=slow)),
    ]
    write_study(tmp_path, cells)
    late, even, loads = read_results(tmp_path).measured
    assert (late.late, even.late, loads.late) == ([2], [], [])
    assert late.why.startswith("rank 2 (node1), behind the others' median in 100% of 120 steps")
    assert "its forward and backward take 1.4 times theirs" in late.why
    assert (late.spent.starved, even.spent.starved, loads.spent.starved) == (False, False, True)
    assert late.spent.share("wait") == pytest.approx(0.2 * 3 / 4)
    assert late.spent.share("communicate") == pytest.approx(0.2)


def test_ranks_that_wait_for_one_that_loads_are_starved_as_well() -> None:
    """Nobody's mean share of loading is large here: one rank loads for half of its time, and three wait for it."""
    from hpcnn.studies.study_timing import spent

    found = times(4, 1.0, late=0, waiting=0.4)
    rows = [
        (epoch, "load" if (one.rank, phase) == (0, "backward") else phase, tally)
        for one in found
        for epoch, phase, tally in one.rows
        if one.rank == 0
    ]
    time = spent([replace(found[0], rows=rows), *found[1:]])
    assert time.share("load") < 0.15
    assert time.starved
    assert not spent(found).starved, "where it computes meanwhile they are not"
