"""The data room on 1 to 4 ranks: what each reads, holds and deals, and how all end on an error under mpirun."""

from __future__ import annotations

import functools
import json
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pytest

from tests.data import load_on_ranks
from tests.data.csv_files import csv_bytes, digits, write
from tests.support.mpi import REPOSITORY, run_ranks
from tests.support.pool import on_ranks, results

SCRIPT = load_on_ranks.__file__
TEST_CSV = REPOSITORY / "data" / "test.csv"
TRAIN_CSV = REPOSITORY / "data" / "train.csv"
RANKS = pytest.mark.parametrize("ranks", [1, 2, 3, 4])

# Beside the file a rank reads pipes and counters of MPI and the kernel: 118 to 128 bytes were seen.
BESIDES = 4096


@functools.cache
def reports(path: Path, ranks: int, batch: int = 37, shards: int | None = None, epoch: int = 0) -> list[dict[str, Any]]:
    return results(on_ranks(ranks, load_on_ranks.report, path, batch, shards, epoch))


def whole_batches(found: list[dict[str, Any]]) -> list[list[list[Any]]]:
    steps = len(found[0]["batches"])
    return [sorted(entry for report in found for entry in report["batches"][step]) for step in range(steps)]


@RANKS
def test_real_rows_are_dealt_in_the_same_batches_at_any_number_of_ranks(ranks: int) -> None:
    """1,000 rows, 100 of them for validation, in batches of 37 from 37 logical shards: nothing divides anything."""
    found = reports(TEST_CSV, ranks)
    batches = whole_batches(found)
    assert batches == whole_batches(reports(TEST_CSV, 1))
    assert [len(batch) for batch in batches] == [37] * 24 + [12]
    rows = [row for batch in batches for row, _ in batch]
    assert len(set(rows)) == len(rows) == 900
    assert {report["normalisation"] for report in found} == {reports(TEST_CSV, 1)[0]["normalisation"]}


@RANKS
def test_another_epoch_deals_the_same_rows_in_another_order(ranks: int) -> None:
    first, second = whole_batches(reports(TEST_CSV, ranks)), whole_batches(reports(TEST_CSV, ranks, epoch=1))
    assert sorted(chain(*first)) == sorted(chain(*second))
    assert all(one != other for one, other in zip(first, second, strict=True))


@RANKS
@pytest.mark.parametrize("shards", [None, 5])
def test_the_kernel_counts_little_more_than_each_ranks_own_interval(ranks: int, shards: int | None) -> None:
    """Also with 5 logical shards, which 2, 3 and 4 ranks share unequally.

    The excess is what cutting by bytes and cutting by rows differ in, at either border. The lengths of this file's
    6,000 rows have a standard deviation of 75.2 bytes, so a border, wherever it lies, is off by 75.2 * sqrt(6000) / 2 =
    2,900 bytes (the deviation in the middle of a random walk with fixed ends): six times that twice, and the header.
    """
    with TRAIN_CSV.open("rb") as file:
        lengths = [len(line) for line in file]
    offsets = list(accumulate(lengths))  # of the rows: the first length is the header's
    for report in reports(TRAIN_CSV, ranks, batch=50, shards=shards):
        own = offsets[report["first_row"] + report["rows"]] - offsets[report["first_row"]]
        assert report["counted"] <= own + 2 * 6 * 2900 + lengths[0]
        assert abs(report["read"] - report["counted"]) <= BESIDES
        assert report["counted"] >= own


@RANKS
def test_a_bad_cell_on_the_last_rank_ends_all_ranks_with_the_same_line(tmp_path: Path, ranks: int) -> None:
    table: list[list[object]] = [list(row) for row in digits(40)]
    table[38][4] = "abc"
    path = write(tmp_path, csv_bytes(table))
    run = run_ranks(ranks, [SCRIPT, str(path), "8", "0"])
    assert run.returncode == 1
    assert run.left_behind == ()
    errors = [json.loads(line) for line in run.stdout.splitlines()]
    message = f"{path}, line 39, column 5: 'abc' is not a number; write numbers with commas between them"
    # mpirun may end the others once the first rank exits with an error, so not all need have spoken.
    assert {error["error"] for error in errors} == {message}
    assert "Traceback" not in run.stderr


@RANKS
def test_a_missing_file_ends_all_ranks_in_one_line(tmp_path: Path, ranks: int) -> None:
    run = run_ranks(ranks, [SCRIPT, str(tmp_path / "missing.csv"), "8", "0"])
    assert run.returncode == 1
    errors = {json.loads(line)["error"] for line in run.stdout.splitlines()}
    assert errors == {f"{tmp_path / 'missing.csv'}: no such file; check the path (on every node)"}


def test_more_ranks_than_logical_shards_are_refused_under_mpirun(tmp_path: Path) -> None:
    path = write(tmp_path, csv_bytes(digits(40)))
    run = run_ranks(4, [SCRIPT, str(path), "8", "3"])
    assert run.returncode == 1
    (message,) = {json.loads(line)["error"] for line in run.stdout.splitlines()}
    assert message.startswith("4 replicas for 3 logical shards")
