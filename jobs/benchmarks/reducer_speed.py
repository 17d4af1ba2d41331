"""How fast hpcnn's reducers are with PyTorch: their sums alone, in training beside each other, Horovod and DDP.

    bash env/with.sh torch python jobs/benchmarks/reducer_speed.py            (all sections, about an hour)
    bash env/with.sh torch python jobs/benchmarks/reducer_speed.py --quick    (a few minutes, to see that it works)

It writes results/benchmarks/reducer_speed.json and reducer_speed.md. A contest that runs again replaces what it found
before. Horovod takes part where it is installed (HPCNN_HOROVOD=yes bash env/create.sh). Let nothing else run on the
machine meanwhile. programs.py says what is timed, exposed.py what sums cost a step, sum_bandwidth.py how a sum is.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contest import Contest, Contestant, Ratio, hold, launched, spread, start_together
from exposed import Clocked, exposed
from programs import (
    NETWORK,
    ROWS,
    alone_on,
    head_of,
    hpcnn,
    on_core,
    on_two_cores,
    parse,
    plain,
    read_hpcnn,
    read_plain,
    settings,
    train_files,
)
from reducer_figures import ReducerReport

SECTIONS = ("sums", "train", "defaults", "dense")
PLAIN = "jobs/plain/torch_script.py"
NETWORKS = (NETWORK, "cnn2d_2layer_fullconnected_2layer")
DENSE, DENSE_ROWS, DENSE_STEPS = "cnn2d_2layer_fullconnected_3layer", 64, 6
"""Network, rows of a rank and steps of an epoch in section dense."""
SIZES = tuple(2**power for power in (16, 20, 24, 26))
HOROVOD = importlib.util.find_spec("horovod") is not None
REDUCERS = ("mpi", "plain", "native", *(("horovod",) if HOROVOD else ()))
NO_THREAD = "mpi, no thread"
FLAGS = {NO_THREAD: ("mpi", "--reducer-option", "progress=none")}
"""What follows --reducer where it is not the name alone."""
OTHERS = {"DDP": "--ddp", **({"Horovod": "--horovod"} if HOROVOD else {})}
"""The plain script's own ways, with their flags."""
LAUNCHES = (("bare", "plain", "nodes", "flat"), *((("bare", "horovod"),) if HOROVOD else ()))
"""Ways to add in one process: Horovod's thread looks for work all the time, and would slow the others down."""
OF_BARE = {"plain": 0.9, "nodes": 0.9, "flat": 0.9, "horovod": None}


def sums(options: argparse.Namespace) -> dict[str, Any]:
    """Bandwidths of each message's sum, beside the bare one."""
    sizes = SIZES[:2] if options.quick else SIZES
    commands, found = [], []
    for ways in LAUNCHES:
        with tempfile.TemporaryDirectory() as folder:
            command = on_two_cores((
                "python", "jobs/benchmarks/sum_bandwidth.py", "OUT/sums.json", "--ways", *ways, "--rounds",
                str(options.rounds), "--sizes", *map(str, sizes),
            ))  # fmt: skip
            start_together([launched(command, Path(folder), {})])
            seconds = json.loads(Path(folder, "sums.json").read_text(encoding="utf-8"))["seconds"]
        commands.append(" ".join(command))
        found += [beside_bare(int(size), of, seconds[size]) for size in seconds for of in ways if of != "bare"]
        print(f"sums: {', '.join(ways)}", flush=True)
    return {"settings": {"ranks": 2, "rounds": options.rounds}, "commands": commands, "sums": found}


def beside_bare(size: int, of: str, seconds: dict[str, list[float]]) -> dict[str, Any]:
    rounds = [theirs / ours for ours, theirs in zip(seconds[of], seconds["bare"], strict=True)]
    bandwidth = {way: spread([size / 1e9 / one for one in seconds[way]]) for way in (of, "bare")}
    found = {"bytes": size, "of": of, "over": "bare", "bandwidth": bandwidth, **spread(rounds), "rounds": rounds}
    target = OF_BARE[of]
    return found | {"target": target} | ({} if target is None else {"reached": found["median"] >= target})


def training(
    own: Sequence[str], sizes: tuple[int, int, int], rows: int, network: str, file: str = ROWS
) -> tuple[Contestant, ...]:
    """The reducers of `own`, and the plain script's ways, tuned."""
    same = {"network": network, "rows": file}
    ours = {name: on_two_cores(hpcnn(*sizes, "data", "--reducer", *FLAGS.get(name, (name,)), **same)) for name in own}
    theirs = {
        f"{name}, tuned": on_two_cores(plain(PLAIN, *sizes, "--tuned", flag, **same)) for name, flag in OTHERS.items()
    }
    return (
        *(Contestant(name, (command,), read_hpcnn, rows) for name, command in ours.items()),
        *(Contestant(name, (command,), read_plain, rows) for name, command in theirs.items()),
    )


def ratios(contestants: Sequence[Contestant]) -> tuple[Ratio, ...]:
    """mpi over all others, as fast as the best of Horovod and DDP."""
    others = [one.name for one in contestants if one.name != "mpi"]
    return tuple(Ratio("mpi", name, 1.0 if name.lower().startswith(("ddp", "horovod")) else None) for name in others)


def train(options: argparse.Namespace) -> Iterator[Contest]:
    for network in NETWORKS[: 1 if options.quick else None]:
        for rows in options.batches or (16, 64, 250, 500):
            contestants = training(("mpi", "plain"), (2 * rows, 1, options.epochs), options.rows, network)
            own = settings(options, network=network, batch=2 * rows, ranks=2, threads=1)
            yield Contest(f"{network}, {rows} rows a rank", own, contestants, ratios(contestants))


def defaults(options: argparse.Namespace) -> Iterator[Contest]:
    """At a large batch, beside the plain script as PyTorch comes."""
    batch = 2 * options.batches[-1] if options.batches else 1000
    sizes = batch, 1, options.epochs
    ours = on_two_cores(hpcnn(*sizes, "data", "--reducer", "mpi"))
    theirs = {f"{name}, defaults": on_two_cores(plain(PLAIN, *sizes, flag)) for name, flag in OTHERS.items()}
    yield Contest(
        f"defaults, global batch {batch}",
        settings(options, batch=batch, ranks=2, threads=1),
        (
            Contestant("mpi", (ours,), read_hpcnn, options.rows),
            *(Contestant(name, (command,), read_plain, options.rows) for name, command in theirs.items()),
        ),
        tuple(Ratio("mpi", name, 2.0) for name in theirs),
    )


def dense(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A network whose gradient is 170 MB: what of its sum is not hidden."""
    each = (options.batches or (DENSE_ROWS,))[-1]
    steps = 1 if options.quick else DENSE_STEPS
    ours = (*REDUCERS, NO_THREAD)
    rows, clocked, cores = 2 * each * steps, Clocked(), sorted(os.sched_getaffinity(0))[:2]
    files = {
        "DENSE.csv": head_of(options.train, rows, folder / "dense.csv"),
        "DENSE_HALF.csv": head_of(options.train, rows // 2, folder / "dense_half.csv"),
    }
    clocks = set(ours) - {"native"}  # whose sums are inside the framework's own step
    talking = [
        replace(one, read=clocked.reader(one.name, steps)) if one.name in clocks else one
        for one in training(ours, (2 * each, 1, options.epochs), rows, DENSE, "DENSE.csv")
    ]
    same = {"network": DENSE, "rows": "DENSE_HALF.csv"}
    alone = alone_on(cores, each, options.epochs, **same)
    scripts = tuple(
        on_core(core, plain(PLAIN, each, 1, options.epochs, "--tuned", **same, out=f"OUT/plain{core}.json"))
        for core in cores
    )
    contestants = (
        *talking,
        Contestant("hpcnn, two alone", alone, read_hpcnn, rows // 2),
        Contestant("plain script, two alone", scripts, read_plain, rows // 2),
    )
    silent = {one.name: "hpcnn" if one.name in ours else "plain script" for one in talking}
    own = settings(options, network=DENSE, rows=rows, batch=2 * each, ranks=2, threads=1)
    rates = tuple(replace(ratio, target=None) for ratio in ratios(talking))
    held = hold(Contest(f"dense, {each} rows a rank", own, contestants, rates), options.rounds, files)
    whom = {name: f"{program}, two alone" for name, program in silent.items()}
    return held | {"exposed": exposed(held, clocked, whom, steps, ("mpi", "plain"), "DDP, tuned")}


def main() -> None:
    sizes = {"rows": (256, 4000), "rounds": (1, 5), "epochs": (2, 3), "batches": ([64], None)}
    options = parse("Measure the speed of hpcnn's reducers.", SECTIONS, sizes)
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("two ranks need two cores")
    options.out.mkdir(parents=True, exist_ok=True)
    report = ReducerReport(options.out / "reducer_speed.json")
    with tempfile.TemporaryDirectory() as folder:
        files = train_files(options, Path(folder))
        for section in options.section or SECTIONS:
            if section == "sums":
                report.add("sums", sums(options))
            elif section == "dense":
                report.add(f"dense, {DENSE}", dense(options, Path(folder)))
            else:
                for contest in {"train": train, "defaults": defaults}[section](options):
                    report.add(contest.name, hold(contest, options.rounds, files))
    print(report.path.with_suffix(".md").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
