from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.data.agree import Communicator, attempt
from hpcnn.data.window import FileWindow
from hpcnn.errors import DataError
from tests.data.csv_files import write
from tests.support.pool import on_ranks

INTERVALS = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted), min_size=1, max_size=8)


def open_as_nobody_on_rank_1(comm: Communicator, path: Path) -> FileWindow:
    return attempt(comm, lambda: open_as_nobody(path) if comm.rank == 1 else FileWindow(path))


def open_as_nobody(path: Path) -> FileWindow:
    """As another user where this one is root, who may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        return FileWindow(path)
    finally:
        os.seteuid(user)


@given(intervals=INTERVALS)
def test_a_window_gives_the_bytes_asked_for_wherever_it_was_before(intervals: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        window = FileWindow(write(Path(folder), bytes(range(100))))
        for start, stop in intervals:
            assert bytes(window.read(start, stop)) == bytes(range(start, stop))


def test_growing_and_sliding_reads_each_byte_once(tmp_path: Path) -> None:
    window = FileWindow(write(tmp_path, bytes(range(100))))
    for start, stop, total in [(20, 40, 20), (20, 60, 40), (10, 60, 50), (30, 50, 50), (50, 70, 60), (80, 90, 70)]:
        window.read(start, stop)
        assert window.bytes_read == total


def test_counting_lines_leaves_the_window_where_it_is(tmp_path: Path) -> None:
    window = FileWindow(write(tmp_path, b"a\nb\nc\n"))
    window.read(2, 6)
    assert [window.count_lines(stop) for stop in range(7)] == [0, 0, 1, 1, 2, 2, 3]
    before = window.bytes_read
    assert bytes(window.read(2, 6)) == b"b\nc\n"
    assert window.bytes_read == before


def test_a_released_window_reads_again(tmp_path: Path) -> None:
    window = FileWindow(write(tmp_path, b"abc"))
    window.read(0, 3)
    window.release()
    assert bytes(window.read(1, 2)) == b"b"


def test_paths_that_are_no_readable_file_are_one_line_errors(tmp_path: Path) -> None:
    file = write(tmp_path, b"1,2\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "empty").touch()
    cases = {
        tmp_path / "missing.csv": "no such file",
        tmp_path / "new\nline": "no such file",
        tmp_path: "is a directory",
        tmp_path / "pipe": "no regular file",
        tmp_path / "loop": "cannot be read",
        file / "below": "cannot be read",
        tmp_path / ("x" * 300): "cannot be read",
        tmp_path / "nul\0": "cannot be read",
        tmp_path / "empty": "is empty",
        Path("/dev/zero"): "no regular file",
    }
    for path, words in cases.items():
        with pytest.raises(DataError, match=words) as caught:
            FileWindow(path)
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("forbidden", ["the file", "its folder"])
def test_what_one_rank_may_not_read_is_a_one_line_error_on_all(forbidden: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, which lies in a folder that is root's alone
        path = write(Path(folder), b"1,2\n")
        path.chmod(0 if forbidden == "the file" else 0o644)
        Path(folder).chmod(0 if forbidden == "its folder" else 0o755)
        outcomes = on_ranks(3, open_as_nobody_on_rank_1, path)
    words = f"{path}: cannot be read (Permission denied); check the path and its permissions"
    assert [repr(outcome) for outcome in outcomes] == [repr(DataError(words))] * 3


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (lambda path: path.unlink(), "no such file; check the path (on every node)"),
        # A folder opens as a file does; it is the reading that the kernel refuses, as it does on a failing disk.
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read (Is a directory); check the path"),
        (lambda path: os.truncate(path, 3), "ends at byte 3 where it had 4; it changed while being read"),
    ],
    ids=["removed", "replaced", "shortened"],
)
def test_a_read_that_fails_after_a_good_start_is_a_one_line_error(
    tmp_path: Path, happens: Callable[[Path], object], words: str
) -> None:
    path = write(tmp_path, b"1,2\n")
    window = FileWindow(path)
    happens(path)
    with pytest.raises(DataError, match=re.escape(f"{path}: {words}")) as caught:
        window.read(0, 4)
    assert len(str(caught.value).splitlines()) == 1
