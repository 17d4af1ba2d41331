"""A folder that all ranks share, one that is not there yet, one that cannot be written and one that each sees another.

That two hosts' own disks are told apart is a test of tests/slurm.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcnn.cluster.shared_folder import appears, judge_folder, nearest_folder
from hpcnn.data.agree import Alone
from tests.support.pool import on_ranks, results

HOSTS = ["n1", "n1", "n2"]


def judged(comm: Any, out: str) -> Any:
    return judge_folder(comm, Path(out), HOSTS[: comm.size])


def test_a_folder_of_all_ranks_is_well_and_left_as_it_was(tmp_path: Path) -> None:
    for finding in results(on_ranks(3, judged, str(tmp_path))):
        assert finding.line == f"{tmp_path} is one folder for 3 ranks on 2 hosts"
        assert finding.level == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    finding = judge_folder(Alone(), tmp_path / "results" / "of" / "mine", ["n1"])
    assert finding.line == f"{tmp_path} is one folder for 1 rank on 1 host"
    assert list(tmp_path.iterdir()) == []
    assert nearest_folder(tmp_path / "results") == tmp_path


def test_a_place_that_cannot_be_written_is_an_error_on_all_ranks() -> None:
    for finding in results(on_ranks(2, judged, "/proc/results")):
        assert (finding.level, finding.what.partition(":")[0]) == ("error", "/proc")
        assert "--out" in finding.remedy


@pytest.mark.parametrize("there", [True, False])
def test_a_file_is_waited_for_no_longer_than_it_takes(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "file").touch()
    assert appears(tmp_path / "file", seconds=0.1) is there
