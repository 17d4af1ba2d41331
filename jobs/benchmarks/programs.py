"""Programs that a benchmark starts, and how long an epoch of each took.

What is timed is the same for all: whole epochs of training steps (batches, dropout, forward, backward, sum over ranks,
update), after one that warms up. hpcnn's are the sum of the phases of timing.csv but for evaluate and checkpoint, of
its slowest rank, with the files that it writes after each epoch; a plain script's its own clock.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contest import REPOSITORY, Command, Epochs

NETWORK = "cnn2d_3layer_fullconnected_3layer"
ROWS, HALF = "ROWS.csv", "HALF.csv"
"""What stands for files of all rows of an epoch, and of half of them."""
NOT_TRAINING = ("evaluate", "checkpoint")


def hpcnn(
    batch: int,
    threads: int,
    epochs: int,
    strategy: str,
    *flags: str,
    network: str = NETWORK,
    rows: str = ROWS,
    out: str = "OUT",
) -> Command:
    return (
        "python", "-m", "hpcnn", "train", "--network", network, "--strategy", strategy, "--train", rows,
        "--optimizer", "adam", "--learning-rate", "0.001", "--global-batch", str(batch), "--threads", str(threads),
        "--epochs", str(epochs), "--no-progress", "--out", out, "--run-id", "run", *flags,
    )  # fmt: skip


def plain(
    script: str,
    batch: int,
    threads: int,
    epochs: int,
    *flags: str,
    network: str = NETWORK,
    rows: str = ROWS,
    out: str = "OUT/plain.json",
) -> Command:
    return (
        "python", script, "--network", network, "--train", rows, "--optimizer", "adam",
        "--learning-rate", "0.001", "--batch", str(batch), "--threads", str(threads), "--epochs", str(epochs),
        "--json", out, *flags,
    )  # fmt: skip


def on_two_cores(command: Command) -> Command:
    return ("mpirun", "-np", "2", "--map-by", "core", "--bind-to", "core", *command)


def on_core(core: int, command: Command) -> Command:
    return ("taskset", "-c", str(core), *command)


def hpcnn_epochs(run: Path) -> Epochs:
    """Seconds of each epoch, of the slowest rank, from a run's timing.csv."""
    seconds: dict[tuple[int, str], float] = defaultdict(float)
    with open(run / "timing.csv", encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["phase"] not in NOT_TRAINING:
                seconds[int(row["epoch"]), row["rank"]] += float(row["seconds"])
    epochs = sorted({epoch for epoch, _ in seconds} - {0})
    return [max(value for (epoch, _), value in seconds.items() if epoch == wanted) for wanted in epochs]


def read_hpcnn(folder: Path) -> list[Epochs]:
    return [hpcnn_epochs(run.parent) for run in sorted(folder.rglob("timing.csv"))]


def alone_on(
    cores: list[int], batch: int, epochs: int, *flags: str, network: str = NETWORK, rows: str = HALF
) -> tuple[Command, ...]:
    """A process of one thread on each core, which do not talk, each on half of the rows."""
    sizes = batch, 1, epochs, "single"
    return tuple(
        on_core(core, hpcnn(*sizes, *flags, network=network, rows=rows, out=f"OUT/{place}"))
        for place, core in enumerate(cores)
    )


def read_plain(folder: Path) -> list[Epochs]:
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("plain*.json"))]
    return [[epoch["seconds"] for epoch in document["epochs"]] for document in documents]


def settings(options: argparse.Namespace, **own: Any) -> dict[str, Any]:
    return {"network": NETWORK, "optimizer": "adam", "rows": options.rows, "epochs": options.epochs, **own}


def head_of(source: Path, rows: int, target: Path) -> Path:
    """The header and the first `rows` rows."""
    with open(source, encoding="utf-8") as stream:
        target.write_text("".join(line for line, _ in zip(stream, range(1 + rows), strict=False)), encoding="utf-8")
    return target


def train_files(options: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """All rows of an epoch, and half of them, under the names that commands have for them."""
    return {
        ROWS: head_of(options.train, options.rows, folder / "rows.csv"),
        HALF: head_of(options.train, options.rows // 2, folder / "half.csv"),
    }


def parse(description: str, sections: Sequence[str], sizes: Mapping[str, tuple[Any, Any]]) -> argparse.Namespace:
    """A benchmark's flags. `sizes`: of rows, rounds, epochs and batches, what --quick takes and what is usual."""
    usual = {name: f"(default: {default}; --quick: {quick})" for name, (quick, default) in sizes.items()}
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="few rows and rounds, one batch a section")
    parser.add_argument("--section", action="append", choices=sections, help="only this one (may be repeated)")
    parser.add_argument("--rows", type=int, help=f"rows of an epoch {usual['rows']}")
    parser.add_argument("--rounds", type=int, help=f"turns of each program {usual['rounds']}")
    parser.add_argument("--epochs", type=int, help=f"epochs of a turn, the first warms up {usual['epochs']}")
    parser.add_argument("--batches", type=int, nargs="+", help="rows of a batch (of a rank, in section ranks)")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="of one process (default: all cores)"
    )
    parser.add_argument("--train", type=Path, default=REPOSITORY / "data" / "train.csv", metavar="CSV")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "benchmarks", metavar="FOLDER")
    options = parser.parse_args()
    for name, (quick, default) in sizes.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else default)
    return options
