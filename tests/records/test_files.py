"""Results are whole or not there at all: on a full disk, past a limit, under a reader and under kill -9."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ResultsError
from hpcnn.records.files import write_csv, write_json, write_text
from tests.support.disk import mounted
from tests.support.mpi import REPOSITORY


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB. The limit on a file's size below needs no rights."""
    yield from mounted(tmp_path / "small", "64k")


def test_on_a_full_disk_the_old_file_stays_whole_and_nothing_else_is_left(small_disk: Path) -> None:
    path = small_disk / "loss.csv"
    write_text(path, "old")
    with pytest.raises(
        ResultsError, match=r"loss\.csv: cannot be written: No space left on device; free space"
    ) as error:
        write_text(path, "new" * 100_000)
    assert "\n" not in str(error.value)
    assert path.read_text() == "old"
    assert [entry.name for entry in small_disk.iterdir()] == ["loss.csv"]
    write_text(path, "and there is room again")


def test_past_the_limit_on_a_files_size_nothing_of_the_new_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_text(path, "old")
    script = (
        "import resource, sys, pathlib\n"
        "from hpcnn.errors import ResultsError\n"
        "from hpcnn.records.files import write_text\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: write_text(pathlib.Path(sys.argv[1]), 'x' * 5000)\n"
        "except ResultsError as error: print(error)\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{path}: cannot be written: File too large; choose another place\n"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["run.json"]


def test_what_is_no_file_is_written_into_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    write_text(pipe, "through the pipe")
    assert reader.communicate(timeout=30)[0] == "through the pipe"
    assert pipe.is_fifo()
    with pytest.raises(ResultsError, match="No space left on device"):
        write_text(Path("/dev/full"), "x" * 100_000)
    assert Path("/dev/full").is_char_device()
    with pytest.raises(ResultsError, match="it is a folder"):
        write_text(tmp_path, "x")


def test_numbers_that_json_has_none_for_are_null(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": [math.nan, 1.5, (math.inf, -math.inf)], "b": {"c": math.nan}})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": [None, 1.5, [None, None]], "b": {"c": None}}


@pytest.mark.parametrize("folder", ["gone", "file"])
def test_without_its_folder_a_file_is_refused_in_one_line(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ResultsError, match="cannot be written") as error:
        write_text(tmp_path / folder / "loss.csv", "x")
    assert str(error.value).startswith(str(tmp_path / folder / "loss.csv"))
    assert "\n" not in str(error.value)


def test_what_cannot_be_encoded_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "results.log"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "a lone \ud800 surrogate")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["results.log"]


def test_a_reader_sees_whole_files_only_while_they_are_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "loss.csv"
    texts = {letter * 200_000 for letter in "ab"}
    write_text(path, "a" * 200_000)
    done = threading.Event()

    def write() -> None:
        for turn in range(40):
            write_text(path, "ab"[turn % 2] * 200_000)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = 0
    while not done.is_set():
        assert path.read_text() in texts
        seen += 1
    writer.join()
    assert seen > 5


def test_a_process_killed_while_it_writes_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "loss.csv"
    script = (
        "import sys, pathlib\n"
        "from hpcnn.records.files import write_text\n"
        "turn = 0\n"
        "while True:\n"
        "    write_text(pathlib.Path(sys.argv[1]), chr(97 + turn % 26) * 1_000_000)\n"
        "    turn += 1\n"
        "    print(turn, flush=True)\n"
    )
    for turns in (1, 2, 5):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(turns):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        text = path.read_text()
        assert len(text) == 1_000_000
        assert len(set(text)) == 1


@given(st.lists(st.floats(width=64), min_size=1, max_size=8))
def test_numbers_in_a_csv_read_back_to_the_bit(values: list[float]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        write_csv(path, ["value"], ([value] for value in values))
        with path.open(newline="") as stream:
            rows = list(csv.reader(stream))
    assert rows[0] == ["value"]
    for value, (cell,) in zip(values, rows[1:], strict=True):
        read = float(cell)
        assert struct.pack("d", read) == struct.pack("d", value) or (math.isnan(read) and math.isnan(value))


def test_none_is_an_empty_cell_and_texts_with_commas_are_quoted(tmp_path: Path) -> None:
    write_csv(tmp_path / "x.csv", ["a", "b", "c"], [(None, "x,y", 0), ('say "hi"', "", None)])
    assert (tmp_path / "x.csv").read_bytes() == b'a,b,c\n,"x,y",0\n"say ""hi""",,\n'


def test_json_keeps_the_order_of_keys_and_ends_in_a_newline(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"zebra": 1, "ape": {"text": "é\ud800"}})
    text = (tmp_path / "x.json").read_text()
    assert text.index("zebra") < text.index("ape")
    assert text.endswith("}\n")
    assert json.loads(text) == {"zebra": 1, "ape": {"text": "é\ud800"}}
