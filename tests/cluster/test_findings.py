"""Findings as a line, as text and as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.cluster.findings import LEVELS, WIDTH, Finding, ok, ranks_text, render, to_dict, worst

FAULT = Finding("error", "launch", "4 processes, each alone", "they would train the same", "start with mpirun")
WORDS = st.lists(st.text("abc de", min_size=1).filter(str.strip), min_size=1, max_size=30).map(" ".join)
FINDINGS = st.lists(st.builds(Finding, st.sampled_from(LEVELS), st.just("cores"), WORDS, WORDS, WORDS), max_size=6)


def test_a_line_has_what_why_and_the_remedy_as_far_as_there_are_any() -> None:
    assert FAULT.line == "4 processes, each alone: they would train the same; start with mpirun"
    assert Finding("error", "launch", "too many", remedy="start fewer").line == "too many; start fewer"
    assert ok("mpi", "Open MPI").line == "Open MPI"


def test_the_text_has_a_paragraph_a_finding_and_counts_them() -> None:
    assert render("here", [ok("mpi", "Open MPI"), FAULT]).splitlines() == [
        "here",
        "ok       mpi       Open MPI",
        "error    launch    4 processes, each alone",
        "                   why: they would train the same",
        "                   mend: start with mpirun",
        "2 findings: 1 error",
    ]
    assert render("here", [ok("mpi", "Open MPI")]).endswith("1 finding: all is well")


@given(FINDINGS)
def test_no_word_is_lost_and_no_line_too_long(findings: list[Finding]) -> None:
    text = render("here", findings)
    assert all(len(line) <= WIDTH for line in text.splitlines() if " " in line.strip()[20:])
    shown = text.split()
    for finding in findings:
        for word in " ".join((finding.what, finding.why, finding.remedy)).split():
            assert word in shown


@given(FINDINGS)
def test_the_worst_is_an_error_where_there_is_one(findings: list[Finding]) -> None:
    levels = [finding.level for finding in findings]
    assert worst(findings) == next((level for level in ("error", "warning") if level in levels), "ok")


def test_the_document_is_json_of_the_same() -> None:
    document = json.loads(json.dumps(to_dict([FAULT], [{"mpi": "x"}])))
    assert document["verdict"] == "error"
    assert document["ranks"] == [{"mpi": "x"}]
    assert Finding(**document["findings"][0]) == FAULT


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "rank 3"), ([0, 1], "ranks 0, 1"), ([0, 1, 2, 3], "ranks 0 to 3"), ([0, 2, 5], "ranks 0, 2, 5")],
)
def test_ranks_are_named_shortly(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text
