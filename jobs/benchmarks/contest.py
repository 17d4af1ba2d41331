"""Programs against each other, turn by turn in one run, so that what the machine does meanwhile hits all of them.

A contest has rounds; in each, every contestant runs once, in the other order every second time (A B, B A, A B ...).
What is compared is the ratio of two contestants within a round; a contest reports its median and quartiles.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 900
WARM_UP_EPOCHS = 1

Command = tuple[str, ...]
Epochs = list[float]


@dataclass(frozen=True)
class Contestant:
    """`commands` are started together; OUT, files' names, python and mpirun in them stand for paths. `read` finds in
    OUT what each of them took, epoch by epoch, in seconds for `rows` rows."""

    name: str
    commands: tuple[Command, ...]
    read: Callable[[Path], list[Epochs]]
    rows: int


@dataclass(frozen=True)
class Ratio:
    """Rate of `faster` over rate of `slower`; `target`: what it should reach, or None where it only informs."""

    faster: str
    slower: str
    target: float | None = None


@dataclass(frozen=True)
class Contest:
    """`name` is its key in the results."""

    name: str
    settings: dict[str, Any]
    contestants: tuple[Contestant, ...]
    ratios: tuple[Ratio, ...]


def hold(contest: Contest, rounds: int, files: Mapping[str, Path]) -> dict[str, Any]:
    """All rounds; returns raw samples and what they come to. `files`: what the names of files in commands stand for."""
    samples: dict[str, list[dict[str, Any]]] = {contestant.name: [] for contestant in contest.contestants}
    for turn in range(rounds):
        for contestant in contest.contestants[:: -1 if turn % 2 else 1]:
            sample = run(contestant, files)
            samples[contestant.name].append(sample)
            print(
                f"{contest.name}, round {turn + 1}: {contestant.name} {sample['rows_per_second']:.0f} rows/s",
                flush=True,
            )
    rates = {name: [sample["rows_per_second"] for sample in taken] for name, taken in samples.items()}
    return {
        "settings": {**contest.settings, "rounds": rounds},
        "contestants": {
            contestant.name: {
                "commands": [" ".join(command) for command in contestant.commands],
                "rows_per_second": spread(rates[contestant.name]),
                "samples": samples[contestant.name],
            }
            for contestant in contest.contestants
        },
        "ratios": [judged(ratio, rates) for ratio in contest.ratios],
    }


def judged(ratio: Ratio, rates: dict[str, list[float]]) -> dict[str, Any]:
    rounds = [ours / theirs for ours, theirs in zip(rates[ratio.faster], rates[ratio.slower], strict=True)]
    found = {"of": ratio.faster, "over": ratio.slower, **spread(rounds), "target": ratio.target, "rounds": rounds}
    return found | ({} if ratio.target is None else {"reached": found["median"] >= ratio.target})


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles (of one value: that value)."""
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": median(values), "lower_quartile": low, "upper_quartile": high}


def run(contestant: Contestant, files: Mapping[str, Path]) -> dict[str, Any]:
    """One turn: seconds of each process and epoch, and the rows a second after warm-up, added over processes."""
    with tempfile.TemporaryDirectory() as folder:
        start_together([launched(command, Path(folder), files) for command in contestant.commands])
        seconds = contestant.read(Path(folder))
    measured = [epochs[WARM_UP_EPOCHS:] for epochs in seconds]
    rate = sum(contestant.rows * len(epochs) / sum(epochs) for epochs in measured)
    return {"rows_per_second": rate, "epoch_seconds": seconds}


def launched(command: Command, folder: Path, files: Mapping[str, Path]) -> list[str]:
    """A command as it is started: with this Python, the mpirun beside it, and real paths."""
    programs = {"python": sys.executable, "mpirun": str(Path(sys.executable).with_name("mpirun"))}
    known = {**programs, **{name: str(path) for name, path in files.items()}}
    return [known.get(word, word.replace("OUT", str(folder))) for word in command]


def start_together(commands: Sequence[Sequence[str]]) -> None:
    """Start all, wait for all; ends them all, with the words of the first that fails, where one does."""
    with ExitStack() as stack:
        processes = [stack.enter_context(process(command)) for command in commands]
        try:
            for one in processes:
                _, words = one.communicate(timeout=LIMIT_SECONDS)
                if one.returncode:
                    raise SystemExit(f"{' '.join(map(str, one.args))} failed with status {one.returncode}:\n{words}")
        finally:
            for one in processes:
                if one.poll() is None:
                    os.killpg(one.pid, signal.SIGTERM)


def process(command: Sequence[str]) -> subprocess.Popen[str]:
    """A process in a group of its own, without thread settings of ours: what a program does by itself counts.

    Where it is several that meet over TCP, they do at a port that nobody else uses."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    path = os.pathsep.join(filter(None, (str(REPOSITORY), kept.get("PYTHONPATH"))))
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**kept, **root, "PYTHONPATH": path, "MASTER_PORT": free_port()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])
