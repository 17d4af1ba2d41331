"""What the suite leaves out it says, torch leaves out nothing, and a file's tests stay in one process."""

from __future__ import annotations

import re
import sys

from tests.conftest import IN_FULL
from tests.support.mpi import run_session
from tests.wrappers.backends import INSTALLED

MATRIX = "tests/wrappers/test_ties.py"
FILES = ("tests/network/test_counter.py", "tests/network/test_masks.py", "tests/support/test_covering.py")


def output(*arguments: str) -> str:
    run = run_session([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments], timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_the_cases_that_a_backend_leaves_out_are_counted_and_torch_leaves_none() -> None:
    some, every = (output("--collect-only", "-q", *flags, MATRIX) for flags in ((), ("--full",)))
    counts = [
        {backend: len(re.findall(rf"::.*\b{backend}\b.*\]$", text, re.MULTILINE)) for backend in INSTALLED}
        for text in (some, every)
    ]
    for backend in INSTALLED:
        assert 0 < counts[0][backend] <= counts[1][backend]
        assert (counts[0][backend] == counts[1][backend]) is (backend == IN_FULL)
    assert f"\n{sum(counts[1].values()) - sum(counts[0].values())} tests left to tests/full.sh\n" in some
    assert "tests/full.sh" not in every


def test_processes_share_out_whole_files_and_say_what_is_left_out_once() -> None:
    text = output("--numprocesses", "2", "-v", *FILES, MATRIX, "-k", "counter or masks or covering")
    taken = set(re.findall(r"^\[(gw\d)\] .* PASSED (\S+?)::", text, re.MULTILINE))
    assert sorted(file for _, file in taken) == sorted(FILES)  # each by one process
    assert {process for process, _ in taken} == {"gw0", "gw1"}
    assert len(re.findall("tests left to tests/full.sh", text)) == 1
