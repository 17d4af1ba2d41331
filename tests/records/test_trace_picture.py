"""timeline.png: which step it shows, what it draws, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcnn.errors import ResultsError
from hpcnn.records.phases import PHASES
from hpcnn.records.trace import trace_document, trace_text
from hpcnn.records.trace_picture import Slice, dominant_phases, draw_timeline, read_timeline
from tests.records.test_trace import traced
from tests.support.mpi import REPOSITORY

pytestmark = pytest.mark.needs("matplotlib")

LENGTHS = {0: 9.0, 1: 2.0, 2: 1.0, 3: 1.5}
"""Seconds of the made steps; the first one is the longest."""


def made(ranks: int = 2) -> dict[str, Any]:
    """Two stages a replica, a message there and one back in each step."""
    found = []
    for rank in range(ranks):
        events: list[tuple[Any, ...]] = [("start", 0.0, 5.0)]
        now = 5.0
        for step, length in LENGTHS.items():
            half = now + length / 2
            sent, got = ("S0.0", "G0.0") if rank % 2 == 0 else ("A1.0", "T1.0")
            events += [("forward", now, half, f"F{rank % 2}.0", step), ("communicate", half, half + 0.1, sent, step)]
            events += [("wait", half + 0.1, now + length, got, step)]
            now += length
        found.append(traced(rank, *events, replica=rank // 2))
    return trace_document(found)


def picture(path: Path) -> Any:
    from matplotlib import image

    return image.imread(path)


def test_slices_steps_and_arrows_are_read_from_the_document() -> None:
    timeline = read_timeline(made())
    assert timeline.slices[0][0] == Slice("start", "start", 0.0, 5e6)
    assert timeline.slices[1][1] == Slice("forward", "F1.0", 5e6, 9.5e6)
    assert timeline.steps == {0: (5e6, 14e6), 1: (14e6, 16e6), 2: (16e6, 17e6), 3: (17e6, 18.5e6)}
    first = min(timeline.arrows)
    assert (first.sender, first.sent, first.receiver) == (0, 9.5e6, 1)
    assert first.accepted == pytest.approx(9.6e6, abs=1)
    assert len(timeline.arrows) == 2 * len(LENGTHS)


def test_the_typical_step_is_the_one_of_median_length_but_for_the_first() -> None:
    assert read_timeline(made()).typical_step() == 3
    assert read_timeline(trace_document([traced(0, ("forward", 0.0, 1.0, "F0.0", 7))])).typical_step() == 7
    assert read_timeline(trace_document([traced(0, ("load", 0.0, 1.0))])).typical_step() is None


def test_of_each_part_of_time_the_phase_that_took_most_is_shown() -> None:
    slices = [
        Slice("load", "load", 0.0, 2.0), Slice("forward", "F0.0", 2.0, 2.6), Slice("wait", "wait", 2.6, 3.0),
        Slice("wait", "A1.0", 3.0, 3.4), Slice("update", "U0", 3.4, 4.0),
    ]  # fmt: skip
    found = dominant_phases(slices, end=8.0, columns=8)
    assert [PHASES[place - 1] if place else "" for place in found] == ["load"] * 2 + ["forward", "update"] + [""] * 4
    assert dominant_phases([Slice("load", "load", 0.0, 8.0)], 8.0, 3) == [1 + PHASES.index("load")] * 3


@pytest.mark.parametrize("ranks", [2, 8, 40])
def test_a_picture_of_several_ranks_is_written_and_not_blank(tmp_path: Path, ranks: int) -> None:
    out = tmp_path / "timeline.png"
    draw_timeline(made(ranks), out)
    pixels = picture(out)
    assert pixels.shape[1] > 1000
    assert pixels[..., :3].std() > 0.05
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.png"]


def test_another_step_gives_another_picture_and_the_same_one_the_same(tmp_path: Path) -> None:
    for name, step in (("a.svg", 1), ("b.png", 1), ("c.png", 1), ("d.png", 2)):
        draw_timeline(made(), tmp_path / name, step)
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<?xml")
    same, again, other = (picture(tmp_path / name) for name in ("b.png", "c.png", "d.png"))
    assert (same == again).all()
    assert not (same == other).all()


def test_a_trace_without_operations_is_drawn_as_a_whole_run(tmp_path: Path) -> None:
    draw_timeline(trace_document([traced(0, ("load", 0.0, 1.0), ("other", 1.0, 2.0))]), tmp_path / "a.png")
    assert picture(tmp_path / "a.png").shape[1] > 1000


def test_a_step_or_a_kind_of_file_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"step 9 is not in the trace, which has 0 to 3: give another --step"):
        draw_timeline(made(), tmp_path / "a.png", 9)
    with pytest.raises(ResultsError, match=r"a\.gif: cannot be drawn: give a name that ends in \.png or \.svg"):
        draw_timeline(made(), tmp_path / "a.gif")
    with pytest.raises(ResultsError, match=r"cannot be written: No such file or directory"):
        draw_timeline(made(), tmp_path / "none" / "a.png")


def test_a_trace_of_another_program_is_refused() -> None:
    with pytest.raises(ResultsError, match=r"an event of the trace has no 'cat'; was it made by another program\?"):
        read_timeline({"traceEvents": [{"ph": "X", "pid": 0, "name": "x", "ts": 0, "dur": 1}]})


def draw(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hpcnn.records.trace_picture", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_draws_a_run_and_says_in_a_line_what_is_missing(tmp_path: Path) -> None:
    done = draw(str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"hpcnn: {tmp_path / 'trace.json'}: is not there; train with --trace\n"
    (tmp_path / "trace.json").write_text("[1]", encoding="utf-8")
    assert draw(str(tmp_path)).stderr.endswith("is no trace: it has no traceEvents; train with --trace\n")
    (tmp_path / "trace.json").write_text(trace_text(made()), encoding="utf-8")
    done = draw(str(tmp_path), "--step", "2")
    assert (done.returncode, done.stdout) == (0, f"timeline: {tmp_path / 'timeline.png'}\n")
    assert picture(tmp_path / "timeline.png").shape[1] > 1000
