"""Between two virtual nodes with a limited cable, sums that begin inside a node send fewer bytes than flat ones do.

No time is judged. Where this machine allows no virtual nodes, the tests that need them are skipped with the reason, or
fail where HPCNN_REQUIRE_NODES=1 promises them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.benchmark_modules import BENCHMARKS, benchmark_module
from tests.support.mpi import REPOSITORY, run_session
from tests.support.required import lacking

COMMITTED = REPOSITORY / "results" / "benchmarks" / "node_traffic.json"
SIZE = 2**20
HEADERS = 1.1
"""A segment of TCP is 1,448 bytes of data in a frame of 1,514, that is 5 %; acknowledgements come to the rest."""


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Any:
    return benchmark_module(monkeypatch, "two_nodes")


def test_sums_that_begin_inside_a_node_send_each_sum_once(two_nodes: Any, tmp_path: Path) -> None:
    if why := two_nodes.obstacle():
        lacking(why, "HPCNN_REQUIRE_NODES")
    flags = ["--section", "sums", "--bytes", str(SIZE), "--times", "2", "--out", str(tmp_path)]
    run = run_session([sys.executable, str(BENCHMARKS / "node_traffic.py"), *flags], timeout=200)
    if "no virtual nodes: " in run.stderr:
        lacking(run.stderr.strip(), "HPCNN_REQUIRE_NODES")
    assert run.returncode == 0, run.stderr
    assert run.left_behind == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node_traffic.json", "node_traffic.md"]
    results = json.loads((tmp_path / "node_traffic.json").read_text(encoding="utf-8"))
    hosts = [section["settings"]["hosts"] for section in results.values()]
    assert hosts == [["node-a", "node-a", "node-b", "node-b"], ["node-a", "node-b", "node-a", "node-b"]]
    for section in results.values():
        ways = section["ways"]
        assert all(one["right"] for one in ways.values())
        assert [ways[way]["algorithm"] for way in ("nodes", "flat")] == ["nodes", "flat"]
        assert {ways[way]["nodes"] for way in ("nodes", "flat")} == {2}
        assert 2 * SIZE <= ways["nodes"]["bytes"] <= 2 * SIZE * HEADERS  # there and back
        assert SIZE <= ways["nodes, float16"]["bytes"] <= SIZE * HEADERS
        # at once, flat is MPI's own Allreduce, which may begin inside a node too
        assert ways["nodes"]["bytes"] < ways["flat"]["bytes"]
        assert section["fewer"]
    assert "\n| nodes | 2." in (tmp_path / "node_traffic.md").read_text(encoding="utf-8")


def test_without_root_it_says_so_in_one_line(two_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_nodes, "PROGRAMS", ())
    monkeypatch.setattr(two_nodes.os, "geteuid", lambda: 1000)
    with (
        pytest.raises(SystemExit, match=r"^no virtual nodes: network namespaces need root$"),
        two_nodes.two_nodes("1gbit"),
    ):
        pass


def test_without_its_programs_it_says_which_package_has_them(two_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_nodes, "PROGRAMS", ("no-such-program",))
    assert two_nodes.obstacle() == "no no-such-program (apt-get install iproute2 util-linux)"


def test_the_committed_counts_are_fewer_by_both_numberings_and_in_training() -> None:
    results = json.loads(COMMITTED.read_text(encoding="utf-8"))
    assert len(results) == 3
    assert all(section["fewer"] and section["settings"]["rate"] == "1gbit" for section in results.values())
