"""How fast hpcnn with PyTorch is: beside the plain PyTorch loop, on two ranks, and beside DistributedDataParallel.

    bash env/with.sh torch python jobs/benchmarks/torch_speed.py            (all sections, about 45 minutes)
    bash env/with.sh torch python jobs/benchmarks/torch_speed.py --quick    (a few minutes, to see that it works)

It writes results/benchmarks/torch_speed.json (raw samples, machine, versions, commands) and torch_speed.md (a table).
A section that runs again replaces what it found before. Let nothing else run on the machine meanwhile.

programs.py says what is timed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from contest import REPOSITORY, Contest, Contestant, Ratio, hold, spread
from programs import alone_on, hpcnn, on_two_cores, parse, plain, read_hpcnn, read_plain, settings, train_files
from report import Report

SECTIONS = ("single", "defaults", "ranks", "startup")
PLAIN = "jobs/plain/torch_script.py"
STARTUP_TARGET = 0.3
EXPLANATION = """\
*plain* is `jobs/plain/torch_script.py` at PyTorch's defaults; *allocator*: with glibc kept from returning memory
between steps; *channels last*: with that memory format; *tuned*: with both, as hpcnn is. *two alone*: two processes
that do not talk, each on half of the batch.
"""


def single(options: argparse.Namespace) -> Iterator[Contest]:
    """One process on all cores, beside the plain script with the same allocator, memory format and threads."""
    for batch in options.batches or (64, 250):
        sizes = batch, options.threads, options.epochs
        yield Contest(
            f"one process, batch {batch}",
            settings(options, batch=batch, ranks=1, threads=options.threads),
            (
                Contestant("hpcnn", (hpcnn(*sizes, "single"),), read_hpcnn, options.rows),
                Contestant("plain, tuned", (plain(PLAIN, *sizes, "--tuned"),), read_plain, options.rows),
            ),
            (Ratio("hpcnn", "plain, tuned", 0.98),),
        )


def defaults(options: argparse.Namespace) -> Iterator[Contest]:
    """The same at a large batch, and beside the plain script as PyTorch comes and with each half of the tuning."""
    batch = (options.batches or (1000,))[-1]
    sizes = batch, options.threads, options.epochs
    tuned = {
        "plain, allocator": ("--tuned", "allocator"),
        "plain, channels last": ("--tuned", "channels_last"),
        "plain, tuned": ("--tuned",),
    }
    if options.quick:
        tuned = {"plain, tuned": tuned["plain, tuned"]}
    yield Contest(
        f"one process, batch {batch}, tuning",
        settings(options, batch=batch, ranks=1, threads=options.threads),
        (
            Contestant("hpcnn", (hpcnn(*sizes, "single"),), read_hpcnn, options.rows),
            Contestant("plain", (plain(PLAIN, *sizes),), read_plain, options.rows),
            *(
                Contestant(name, (plain(PLAIN, *sizes, *flags),), read_plain, options.rows)
                for name, flags in tuned.items()
            ),
        ),
        (Ratio("hpcnn", "plain, tuned", 0.98), Ratio("hpcnn", "plain", 2.0), *(Ratio(name, "plain") for name in tuned)),
    )


def ranks(options: argparse.Namespace) -> Iterator[Contest]:
    """Two ranks of one thread, each on a core: beside two processes that do not talk, and beside DDP."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        print("section ranks needs two cores: left out")
        return
    for rows in options.batches or (16, 64, 250):
        sizes = 2 * rows, 1, options.epochs
        alone = alone_on(cores, rows, options.epochs)
        ddp = on_two_cores(plain(PLAIN, *sizes, "--tuned", "--ddp"))
        yield Contest(
            f"two ranks, {rows} rows each",
            settings(options, batch=2 * rows, ranks=2, threads=1),
            (
                Contestant("hpcnn", (on_two_cores(hpcnn(*sizes, "data")),), read_hpcnn, options.rows),
                Contestant("two alone", alone, read_hpcnn, options.rows // 2),
                Contestant("DDP, tuned", (ddp,), read_plain, options.rows),
            ),
            (Ratio("hpcnn", "two alone", 0.95), Ratio("hpcnn", "DDP, tuned", 1.0)),
        )


def startup(rounds: int) -> dict[str, Any]:
    """Seconds from start to end of a process, turn by turn; an empty one for comparison."""
    commands = {
        "python -c pass": ("-c", "pass"),
        "import hpcnn": ("-c", "import hpcnn"),
        "hpcnn --help": ("-m", "hpcnn", "--help"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(1 + rounds):
        for name, arguments in list(commands.items())[:: -1 if turn % 2 else 1]:
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)
            if turn:  # the first reads files from disk
                seconds[name].append(time.perf_counter() - began)
    found: dict[str, Any] = {}
    for name, taken in seconds.items():
        target = STARTUP_TARGET if "hpcnn" in name else None
        judged = {} if target is None else {"reached": median(taken) < target}
        found[name] = {**spread(taken), "target": target, **judged, "samples": taken}
    return {"settings": {"rounds": rounds}, "seconds": found}


def main() -> None:
    sizes = {"rows": (512, 6000), "rounds": (2, 10), "epochs": (2, 3), "batches": ([64], None)}
    options = parse("Measure the speed of hpcnn with PyTorch.", SECTIONS, sizes)
    options.out.mkdir(parents=True, exist_ok=True)
    report = Report(options.out / "torch_speed.json", "Speed with PyTorch", EXPLANATION, ("torch",))
    makers = {"single": single, "defaults": defaults, "ranks": ranks}
    with tempfile.TemporaryDirectory() as folder:
        files = train_files(options, Path(folder))
        for section in options.section or SECTIONS:
            if section == "startup":
                report.add("start-up", startup(options.rounds))
                continue
            for contest in makers[section](options):
                report.add(contest.name, hold(contest, options.rounds, files))
    print(report.path.with_suffix(".md").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
