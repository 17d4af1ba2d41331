"""The report of a study: study.csv, tables.md, plots/ and report.html, from what its folder holds and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcnn.records.files import write_text
from hpcnn.studies.cells import ASKED
from hpcnn.studies.study_facts import fact_tables
from hpcnn.studies.study_headlines import headlines
from hpcnn.studies.study_page import page
from hpcnn.studies.study_plots import Plot, draw_scaling, draw_throughput, drawn
from hpcnn.studies.study_plots_of_runs import (
    MOST_CURVES,
    MOST_PANELS,
    MOST_RUNS,
    draw_agreement,
    draw_losses,
    draw_phases,
)
from hpcnn.studies.study_reading import Results, read_results
from hpcnn.studies.study_sameness import Sameness, sameness
from hpcnn.studies.study_series import Series, series_of
from hpcnn.studies.study_table import write_tidy
from hpcnn.studies.study_tables import markdown, tables

TABLE, TABLES, PAGE, PLOTS = "study.csv", "tables.md", "report.html", "plots"
NAMES = ("strong_scaling", "weak_scaling", "throughput", "phases", "losses", "agreement")
"""Of the plots that there may be."""


def write_report(folder: Path) -> list[Path]:
    """Write all of it into the study's folder; returns the files, the page last. The same runs give the same bytes.

    Raises ResultsError where `folder` holds no study, NotInstalledError without Matplotlib. A study that is not at its
    end yet is reported as far as it is.
    """
    study = read_results(folder)
    series = series_of(study.measured)
    verdicts = sameness(study.measured)
    lines = headlines(study, series, verdicts)
    text, facts = tables(study, series, verdicts), fact_tables(study)
    plots = draw_plots(study, series, verdicts)
    write_tidy(study, folder / TABLE)
    write_text(folder / TABLES, markdown([*text, *facts], [*lines, *study.notes], study.name))
    (folder / PLOTS).mkdir(exist_ok=True)
    written = [path for plot in plots for path in plot.write(folder / PLOTS)]
    for old in {folder / PLOTS / f"{name}.{kind}" for name in NAMES for kind in ("svg", "png")} - set(written):
        old.unlink(missing_ok=True)  # of runs that count no more
    write_text(
        folder / PAGE, page(study.name, about(study), [*lines, *study.notes], plots, [*text, *facts], asked(folder))
    )
    return [folder / TABLE, folder / TABLES, *written, folder / PAGE]


def asked(folder: Path) -> str:
    """The study file as it was given; empty where there is none, as of cells that were put together by hand."""
    try:
        return (folder / ASKED).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def about(study: Results) -> str:
    return (
        f"{len(study.measured)} of {len(study.cells)} runs count; {study.warmup} warm-up steps of each are apart. "
        f"Plots are beside this page as SVG and PNG, every run's figures in {TABLE}."
    )


def draw_plots(study: Results, series: Sequence[Series], verdicts: Mapping[str, Sameness]) -> list[Plot]:
    """Those that have something to show, in the order of the page."""
    ranges = "Medians over repeats, with quartiles; the thin lines are the laws fitted."
    of = {kind: [one for one in series if one.scaling == kind] for kind in ("strong", "weak", "none")}
    return [
        *drawn("strong_scaling", "Strong scaling", ranges, lambda: draw_scaling(of["strong"])),
        *drawn("weak_scaling", "Weak scaling", ranges, lambda: draw_scaling(of["weak"])),
        *drawn(
            "throughput",
            "Throughput",
            "Rows trained a second: medians over repeats, with quartiles.",
            lambda: draw_throughput(of["none"]),
        ),
        *drawn(
            "phases",
            "Where a step's time goes",
            "A bar a rank: milliseconds of a step by phase, of the run with the median rate. "
            f"At most {MOST_PANELS} series are drawn.",
            lambda: draw_phases(series),
        ),
        *drawn(
            "losses",
            "Loss and accuracy",
            "Means over a fortieth of the steps; marks are validation. Time is that of training, from the end of the "
            f"warm-up on, and within an epoch even. At most {MOST_CURVES} runs are drawn.",
            lambda: draw_losses(series, study.warmup),
        ),
        *drawn(
            "agreement",
            "Is it the same training?",
            "The darker, the further apart, by order of magnitude; blank of runs that are other experiments. "
            f"At most {MOST_RUNS} runs are drawn.",
            lambda: draw_agreement(series, verdicts),
        ),
    ]
