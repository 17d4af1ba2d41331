"""Which runs of a study are one series, over which base, and which of them are the same training."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpcnn.studies.scaling import karp_flatt
from hpcnn.studies.study_headlines import headlines
from hpcnn.studies.study_reading import read_results
from hpcnn.studies.study_sameness import sameness
from hpcnn.studies.study_series import Series, series_of
from hpcnn.studies.study_tables import tables
from tests.studies.made_studies import (
    BATCH,
    EPOCHS,
    SERIAL,
    STEPS,
    WARMUP,
    cell,
    make_study,
    times,
    write_cell,
    write_study,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("made") / "study")


@pytest.fixture(scope="module")
def series(made: Path) -> list[Series]:
    return series_of(read_results(made).measured)


def test_series_are_told_apart_and_have_their_bases(series: list[Series]) -> None:
    assert [(one.name, [point.ranks for point in one.points]) for one in series] == [
        ("torch, data (strong)", [1, 2, 4]),
        ("torch, pipeline, 1f1b, micro batches 5 (strong)", [1, 2]),
        ("torch, data (weak)", [1, 2]),
        ("lasagne, data", [1]),
    ]
    strong, pipeline, weak, loads = series
    assert strong.fit is not None
    assert weak.fit is not None
    assert (strong.fit.serial, weak.fit.serial) == (pytest.approx(SERIAL), pytest.approx(SERIAL))
    assert [point.speedup.median for point in strong.points] == pytest.approx([1, 1 / 0.55, 1 / 0.325])
    assert [point.fraction for point in strong.points[1:]] == pytest.approx([SERIAL, SERIAL])
    assert pipeline.points[0].runs == strong.points[0].runs, "one rank is one rank, whatever would share the work out"
    assert pipeline.points[1].fraction == pytest.approx(karp_flatt(4 / 3, 2))
    assert weak.points[1].speedup.median == pytest.approx(1.9)
    assert np.isnan(loads.points[0].speedup.median)


def test_a_base_of_several_ranks_counts_as_ideal(tmp_path: Path) -> None:
    cells = [write_cell(tmp_path, cell("a", ranks), times(ranks, 8.0 / ranks)) for ranks in (2, 4)]
    write_study(tmp_path, cells)
    results = read_results(tmp_path)
    (one,) = found = series_of(results.measured)
    assert (one.base, [point.speedup.median for point in one.points]) == (2, pytest.approx([2, 4]))
    assert all(np.isnan(point.fraction) for point in one.points), "of one rank nothing is known"
    (scaling, *_) = tables(results, found, sameness(results.measured))
    assert "torch, data was not run on one rank: its speed-up is over 2 ranks" in scaling.words


def test_settings_that_differ_are_in_a_series_name(tmp_path: Path) -> None:
    cells = [
        cell("a", 2, backend="keras", keras_backend="jax", scaling="none"),
        cell("b", 2, reducer="horovod", scaling="none"),
        cell("c", 2, threads=2, scaling="none"),
        cell("d", 4, strategy="hybrid", grid="dp=2,pp=2", schedule="gpipe", scaling="none"),
        cell("e", 8, strategy="hybrid", grid="dp=4,pp=2", schedule="gpipe", scaling="none"),
    ]
    cells += [cell(f"f{rows}", 4, scaling="weak", global_batch=4 * rows, rows=4000) for rows in (16, 32)]
    facts = {"config": {"backend": "keras", "backend_option": {"backend": "jax"}}}
    written = [
        write_cell(tmp_path, one, times(one.ranks, 1.0), facts=facts if one.settings["keras_backend"] else None)
        for one in cells
    ]
    write_study(tmp_path, written)
    results = read_results(tmp_path)
    assert [one.label for one in series_of(results.measured)] == [
        "keras on jax, data, mpi, threads 1",
        "torch, data, horovod, threads 1",
        "torch, data, mpi, threads 2",
        "torch, hybrid, pp=2, gpipe, mpi, threads 1",
        "torch, data, batch a rank 16",
        "torch, data, batch a rank 32",
    ]


def test_runs_are_held_against_their_own_experiment(made: Path) -> None:
    found = sameness(read_results(made).measured)
    baselines = {one.baseline.cell.key for one in found.values() if one.baseline is not None}
    assert baselines == {"strong_np1_r0", "weak_np2_r0"}, "twice the batch is another experiment"
    assert (found["strong_np1_r1"].verdict, found["strong_np4_r0"].verdict) == ("same", "float noise")


def test_a_training_that_is_another_one_is_called_so_first(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "study"
    shutil.copytree(made, copy)
    path = copy / "runs" / "strong_np2_r1" / "run" / "loss.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], *(re.sub(r"0\.001,\d", "0.001,7", line) for line in lines[1:])]) + "\n")
    results = read_results(copy)
    verdicts = sameness(results.measured)
    assert verdicts["strong_np2_r1"].verdict == "different"
    lines = headlines(results, series_of(results.measured), verdicts)
    (line,) = [line for line in lines if "the same training" in line]
    assert line.startswith("Not all the same training: ")
    assert "1 different against the run on the fewest ranks; first strong_np2_r1: " in line


def test_points_know_the_run_in_the_middle(tmp_path: Path) -> None:
    cells = [
        write_cell(tmp_path, cell("a", 1, place), times(1, seconds)) for place, seconds in enumerate((3.0, 1.0, 2.0))
    ]
    write_study(tmp_path, cells)
    (one,) = series_of(read_results(tmp_path).measured)
    assert one.points[0].typical.cell.repeat == 2
    rows = (EPOCHS * STEPS - WARMUP) * BATCH
    assert one.points[0].rate.median == pytest.approx(rows / (EPOCHS * 2.0))
    assert replace(one, points=[]).points == []
