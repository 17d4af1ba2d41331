"""A study's report: tables, plots in both formats, and a page that needs nothing but itself."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from hpcnn.errors import ResultsError
from hpcnn.studies.study_plots_of_runs import smoothed
from hpcnn.studies.study_reading import read_results
from hpcnn.studies.study_report import NAMES, write_report
from hpcnn.studies.study_sameness import sameness
from hpcnn.studies.study_series import series_of
from hpcnn.studies.study_tables import Table, markdown
from tests.studies.made_studies import (
    WARMUP,
    cell,
    make_study,
    times,
    write_cell,
    write_study,
)
from tests.studies.trained import trained, write_files
from tests.support.mpi import run_session

VOID = {"meta", "link", "br", "hr", "img", "input"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("made") / "study")


@pytest.fixture(scope="module")
def report(made: Path) -> dict[str, bytes]:
    """What was written, by its name in the folder."""
    return {str(path.relative_to(made)): path.read_bytes() for path in write_report(made)}


class Page(HTMLParser):
    """Every tag closed in its order, every address, every name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.names: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "action", "data"):
                self.addresses.append(value or "")
            self.names += [value or ""] if name == "id" else []

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_every_plot_has_both_formats(report: dict[str, bytes]) -> None:
    plots = [f"plots/{name}.{kind}" for name in NAMES for kind in ("svg", "png")]
    assert list(report) == ["study.csv", "tables.md", *plots, "report.html"]
    for name in NAMES:
        picture = ElementTree.fromstring(report[f"plots/{name}.svg"])
        assert picture.tag == "{http://www.w3.org/2000/svg}svg"
        assert report[f"plots/{name}.png"].startswith(b"\x89PNG\r\n")


def test_the_page_is_whole_and_needs_nothing_but_itself(report: dict[str, bytes]) -> None:
    text = report["report.html"].decode()
    page = Page(text)
    assert page.open == []
    assert len(page.names) == len(set(page.names)), "pictures do not take each other's parts"
    assert page.addresses
    for address in page.addresses:
        assert address.startswith("#")
        assert address[1:] in page.names
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(page.names)
    assert not re.search(r"https?:|@import|<script|<link|url\((?!#)", text)
    assert text.count("<svg ") == 6
    assert "@media print" in text


def test_the_page_says_it_all_and_the_in_order(report: dict[str, bytes]) -> None:
    said = " ".join(" ".join(Page(report["report.html"].decode()).texts).split())
    in_order = (
        "Strong scaling, torch, data: 4 ranks train 3.08 times the samples a second of 1 rank, efficiency 77 %.",
        "Amdahl's law fits a serial fraction of 10.0 % (95 %: 10.0 % to 10.0 %): "
        "no number of ranks would make it more than 10 times as fast.",
        "Weak scaling, torch, data: 2 ranks train 1.90 times the samples a second of 1 rank, efficiency 95 %.",
        "What it cost: ",
        "(rank 1 was late in 2 of 2 runs)",
        "Starved by loading: ",
        "The same training: 5 same, 6 float noise ",
        "1 of 14 cells are left out",
        "Medians over repeats",
        "its forward and backward take 1.1 times theirs",
        "starved by loading: 40 %",
        "8 ranks are more than the 4 | cores of <this> machine",
        "a processor",
        "torch 2.13.0",
    )
    places = [said.index(words) for words in in_order]
    assert places == sorted(places)


def test_the_same_runs_give_the_same_bytes_wherever_they_lie(tmp_path: Path) -> None:
    first, second = tmp_path / "study", tmp_path / "elsewhere"
    write_study(first, [write_cell(first, cell("a", ranks), times(ranks, 4.0 / ranks)) for ranks in (1, 2)])
    shutil.copytree(first, second)
    written = [path.relative_to(first) for path in write_report(first)]
    assert [path.relative_to(second) for path in write_report(second)] == written
    assert len(written) == 11
    assert {name for name in written if (first / name).read_bytes() != (second / name).read_bytes()} == set()
    shutil.rmtree(second / "runs")
    write_report(second)
    assert list((second / "plots").iterdir()) == [], "a plot of runs that are gone goes too"


def test_the_tidy_table_reads_back_to_the_bit(made: Path, report: dict[str, bytes]) -> None:
    path = made / "study.csv"
    texts = pd.read_csv(path, dtype=str).set_index("key")
    assert len(texts) == 13
    for one in read_results(made).measured:
        row = texts.loc[one.cell.key]
        assert float(row["samples_per_second"]) == one.rate
        assert float(row["backward_share"]) == one.spent.share("backward")
        assert (int(row["ranks"]), int(row["global_batch"])) == (one.cell.ranks, one.cell.settings["global_batch"])
    frame = pd.read_csv(path).set_index("key")
    shares = frame[[name for name in frame.columns if name.endswith("_share")]].sum(axis=1)
    assert shares.to_numpy() == pytest.approx(1)
    late = frame.loc["strong_np4_r0"]
    assert (late["late_ranks"], late["starved_by_loading"]) == (1, False)
    assert frame.loc["loads_np1_r0", "starved_by_loading"]
    assert json.loads(frame.loc["loads_np1_r0", "backend_option"]) == {}


def test_a_study_without_a_run_has_a_report_that_says_so(tmp_path: Path) -> None:
    write_study(tmp_path, [cell("a", 1, state="waiting"), cell("b", 1, state="refused", reason="no such backend")])
    assert [path.name for path in write_report(tmp_path)] == ["study.csv", "tables.md", "report.html"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "None of 2 cells has a run that counts." in text
    assert "no such backend" in text


def test_a_markdown_cell_stays_in_its_cell() -> None:
    text = markdown([Table("Title", ["a", "b"], [["x|y", "two\nlines"], ["<b>", "*"]])], ["one_line"], "name")
    assert "| x\\|y | two lines |\n| \\<b> | \\* |\n" in text
    assert "- one\\_line" in text


def test_a_smooth_curve_is_a_mean_over_its_window() -> None:
    values = np.arange(120.0)
    smooth, window = smoothed(values)
    assert window == 3
    assert smooth.tolist() == pytest.approx(np.convolve(values, np.ones(3) / 3, "valid").tolist())
    assert smoothed(values[:5])[1] == 1


def test_without_matplotlib_it_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    write_study(tmp_path, [write_cell(tmp_path, cell("a", 1), times(1, 4.0))])
    command = [sys.executable, "-m", "tests.support.without", "matplotlib", "study", "report", str(tmp_path)]
    run = run_session(command)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == "hpcnn: a report draws with matplotlib, which is not installed: pip install 'hpcnn[plots]'\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cells.json", "runs"]


@pytest.mark.needs("torch")
def test_a_study_that_was_really_trained(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    cells = []
    for ranks in (1, 2):
        one = cell("real", ranks, network=files["network"], global_batch=files["global_batch"], epochs=files["epochs"])
        out = tmp_path / "study" / "runs" / one.key
        (run,) = trained(ranks, [{**files, "out": str(out), "settle_steps": WARMUP}])
        cells.append(replace(one, run=str(run.relative_to(tmp_path / "study"))))
    write_study(tmp_path / "study", cells)
    written = write_report(tmp_path / "study")
    results = read_results(tmp_path / "study")
    assert not results.left_out
    assert {one.cell.ranks: one.rows for one in results.measured} == {1: 2 * 101 - 2 * 13, 2: 2 * 101 - 2 * 13}
    assert "not recorded" not in " ".join(one.why for one in results.measured)
    (one,) = series_of(results.measured)
    assert [point.ranks for point in one.points] == [1, 2]
    assert sameness(results.measured)["real_np2_r0"].verdict in ("same", "float noise")
    Page(written[-1].read_text(encoding="utf-8"))
    frame = pd.read_csv(tmp_path / "study" / "study.csv")
    assert frame["final_loss"].iloc[0] == pytest.approx(frame["final_loss"].iloc[1], rel=1e-3)
    assert (frame["communicate_seconds"] > 0).tolist() == [False, True]


def test_a_folder_of_no_study_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"cells\.json: no such file: is .* the folder of a study that was run"):
        write_report(tmp_path)
