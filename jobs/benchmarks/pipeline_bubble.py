"""How long pipeline stages wait, and how much they hold, beside what the papers say; and what an operation costs.

    bash env/with.sh torch python jobs/benchmarks/pipeline_bubble.py            (about a quarter of an hour)
    bash env/with.sh torch python jobs/benchmarks/pipeline_bubble.py --quick    (two minutes, to see that it works)

It writes results/benchmarks/pipeline_bubble.json, .md and .png. A section that runs again replaces what it found
before. Ranks, messages, programs, updates and clocks are those of any run; only what a framework would compute is a
sleep of the same length (--backend simulated), so that sixteen ranks can be measured on two cores.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean, median
from typing import Any

import pipeline_theory as theory
from bubble_figures import BubbleReport, draw
from contest import REPOSITORY, Command, launched, start_together
from programs import NOT_TRAINING, head_of

SCHEDULES = ("layer-by-layer", "gpipe", "1f1b", "interleaved", "zero-bubble")
SIZES = {4: 8, 8: 16, 16: 16}
"""Micro-batches by ranks."""
SECTIONS = ("bubble", "executor")
STAGE_SECONDS = 0.04
"""Of a stage's forward of a micro-batch, in all its segments; its backward takes twice that."""
ROWS = 4
"""Of a micro-batch: a message is 4 x 8 x 28 x 28 float32, 98 KiB, more than MPI sends without being asked for it."""
TARGET_POINTS = 5.0
EXECUTORS: dict[str, tuple[int, str | None, float | None]] = {
    "one rank": (1, None, 50.0),
    "two stages, gpipe": (2, "gpipe", 50.0),
    "two stages, 1f1b": (2, "1f1b", None),
}
"""Ranks, schedule, and microseconds an operation at most. Under 1f1b with nothing to compute, every operation waits for
the other stage's: that is how long messages take, not what the executor costs."""
EXECUTOR_MICRO_BATCHES = 256
COMPUTING = ("forward", "backward", "gradient")
EXECUTING = (*COMPUTING, "communicate", "wait", "other")
CLOSING = "BLW"
"""Letters of the operations that end what an F began."""

Seconds = dict[tuple[int, int, str], float]
"""By epoch, rank and phase."""


def network(segments: int) -> str:
    """A network file of equal layers, at least one for each segment."""
    layer = '[[layer]]\ntype = "{}"\n{}\n'.format
    convolution = layer("convolution", 'filters = 8\nkernel = 1\npadding = "same"')
    head = (layer("flatten", ""), layer("dense", 'units = "classes"'), layer("softmax", ""))
    return "".join(['[network]\nname = "tall"\n\n', *[convolution] * segments, *head])


def training(ranks: int, batch: int, epochs: int, strategy: str, forward_seconds: float, *flags: str) -> Command:
    mpirun = ("mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")
    return (
        *(mpirun if ranks > 1 else ()), "python", "-m", "hpcnn", "train", "--network", "NETWORK.toml", "--train",
        "ROWS.csv", "--backend", "simulated", "--backend-option", f"forward_seconds={forward_seconds:g}", "--strategy",
        strategy, "--optimizer", "sgd", "--learning-rate", "0.01", "--global-batch", str(batch), "--epochs",
        str(epochs), "--threads", "1", "--no-progress", "--out", "OUT", "--run-id", "run", *flags,
    )  # fmt: skip


def piped(schedule: str, micro_batches: int) -> tuple[str, ...]:
    chunks = theory.CHUNKS.get(schedule, 1)
    several = ("--chunks", str(chunks)) if chunks > 1 else ()
    return ("--schedule", schedule, "--micro-batches", str(micro_batches), *several)


def run(command: Command, rows: int, segments: int, options: argparse.Namespace, folder: Path) -> Path:
    """Carry it out in `folder`; returns the run's folder."""
    network_file = folder / "tall.toml"
    network_file.write_text(network(segments), encoding="utf-8")
    files = {"ROWS.csv": head_of(options.train, rows, folder / "rows.csv"), "NETWORK.toml": network_file}
    start_together([launched(command, folder, files)])
    return folder / "run"


def seconds_of(run: Path) -> Seconds:
    """What timing.csv holds of epochs after the one that warms up."""
    found: Seconds = {}
    with open(run / "timing.csv", encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if int(row["epoch"]) > 1 and row["phase"] not in NOT_TRAINING:
                found[int(row["epoch"]), int(row["rank"]), row["phase"]] = float(row["seconds"])
    return found


def total(seconds: Mapping[tuple[int, int, str], float], rank: int, phases: tuple[str, ...] | None = None) -> float:
    return sum(value for (_, one, phase), value in seconds.items() if one == rank and phase in (phases or (phase,)))


def held(trace: Mapping[str, Any], ranks: int) -> list[int]:
    """The most forwards that waited for their backward at once, rank by rank, of what a trace saw carried out."""
    begun: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for event in trace["traceEvents"]:
        step = event.get("args", {}).get("step")
        if event["ph"] == "X" and step is not None:
            begun[event["pid"], step].setdefault(event["name"], event["ts"])
    most = [0] * ranks
    for (rank, _), times in begun.items():
        now = 0
        for name in sorted(times, key=lambda one: times[one]):
            now += (name[0] == "F") - (name[0] in CLOSING)
            most[rank] = max(most[rank], now)
    return most


def measured(schedule: str, ranks: int, micro_batches: int, options: argparse.Namespace) -> dict[str, Any]:
    """One run of a schedule: the ranks' own clocks, and what their trace shows."""
    chunks, batch = theory.CHUNKS.get(schedule, 1), ROWS * micro_batches
    forward = options.seconds / chunks
    command = training(ranks, batch, options.epochs, "pipeline", forward, "--trace", *piped(schedule, micro_batches))
    with tempfile.TemporaryDirectory() as folder:
        found = run(command, batch * options.steps, ranks * chunks, options, Path(folder))
        seconds = seconds_of(found)
        stored = held(json.loads((found / "trace.json").read_text(encoding="utf-8")), ranks)
    wall = [total(seconds, rank) for rank in range(ranks)]
    waits = [1 - total(seconds, rank, COMPUTING) / wall[rank] for rank in range(ranks)]
    expected = theory.bubble(schedule, ranks, micro_batches)
    apart = 100 * (mean(waits) - expected)
    return {
        "command": " ".join(command),
        "bubble": mean(waits),
        "bubble_of_ranks": waits,
        "theory": expected,
        "points_apart": apart,
        "reached": abs(apart) <= TARGET_POINTS,
        "step_seconds": mean(wall) / (options.steps * (options.epochs - 1)),
        "step_seconds_in_theory": theory.step_seconds(schedule, ranks, micro_batches, 3 * options.seconds),
        "stored": stored,
        "stored_in_theory": theory.stored(schedule, ranks, micro_batches),
    }


def bubbles(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schedule at each number of ranks."""
    for ranks in options.ranks:
        micro_batches = SIZES[ranks]
        schedules = {}
        for schedule in options.schedules:
            one = schedules[schedule] = measured(schedule, ranks, micro_batches, options)
            print(
                f"{ranks} ranks, {schedule}: bubble {one['bubble']:.1%}, theory {one['theory']:.1%}; stored "
                f"{one['stored']}",
                flush=True,
            )
        settings = {
            "ranks": ranks, "micro_batches": micro_batches, "stage_forward_seconds": options.seconds,
            "stage_backward_seconds": 2 * options.seconds, "steps_measured": options.steps * (options.epochs - 1),
            "message_bytes": ROWS * 8 * 28 * 28 * 4, "target_points": TARGET_POINTS,
        }  # fmt: skip
        yield f"{ranks} ranks, {micro_batches} micro-batches", {"settings": settings, "schedules": schedules}


def executor_cost(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Microseconds an operation where computing takes no time at all: one rank, or two stages."""
    ranks, schedule, target = EXECUTORS[name]
    pieces = EXECUTOR_MICRO_BATCHES
    flags = piped(schedule, pieces) if schedule else ("--micro-batches", str(pieces))
    command = training(ranks, pieces, options.epochs + 2, "pipeline" if schedule else "single", 0.0, *flags)
    with tempfile.TemporaryDirectory() as folder:
        found = run(command, pieces * options.executor_steps, ranks, options, Path(folder))
        seconds = seconds_of(found)
        operations = len(json.loads((found / "run.json").read_text(encoding="utf-8"))["program"].split())
    each = 1e6 / (operations * options.executor_steps)

    def cost(epoch: int, without: tuple[str, ...] = ()) -> float:
        """Of the slowest rank."""
        own = {key: value for key, value in seconds.items() if key[0] == epoch and key[2] not in without}
        return each * max(total(own, rank, EXECUTING) for rank in range(ranks))

    epochs = sorted({epoch for epoch, _, _ in seconds})
    samples = [cost(epoch) for epoch in epochs]
    return {
        "command": " ".join(command),
        "operations": operations,
        "microseconds": median(samples),
        "microseconds_without_wait": median(cost(epoch, ("wait",)) for epoch in epochs),
        "samples": samples,
        "target": target,
        **({} if target is None else {"reached": median(samples) < target}),
    }


def executor(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    costs = {name: executor_cost(name, options) for name in EXECUTORS}
    yield "executor", {"settings": {"steps": options.executor_steps}, "costs": costs}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the bubble of pipeline schedules, and an operation's cost.")
    parser.add_argument("--quick", action="store_true", help="four ranks, two steps of shorter forwards")
    parser.add_argument("--section", action="append", choices=SECTIONS, help="only this one (may be repeated)")
    parser.add_argument("--ranks", type=int, nargs="+", choices=SIZES, help="(default: all; --quick: 4)")
    parser.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=SCHEDULES)
    parser.add_argument("--steps", type=int, help="of an epoch (default: 3; --quick: 1)")
    parser.add_argument("--epochs", type=int, default=2, help="the first warms up (default: 2)")
    parser.add_argument(
        "--seconds", type=float, help=f"of a stage's forward (default: {STAGE_SECONDS}; --quick: half of it)"
    )
    parser.add_argument("--train", type=Path, default=REPOSITORY / "data" / "train.csv", metavar="CSV")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "benchmarks", metavar="FOLDER")
    options = parser.parse_args()
    options.ranks = options.ranks or ([4] if options.quick else list(SIZES))
    options.steps = options.steps or (1 if options.quick else 3)
    options.seconds = options.seconds or STAGE_SECONDS / (2 if options.quick else 1)
    options.executor_steps = 2 if options.quick else 12
    return options


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    report = BubbleReport(options.out / "pipeline_bubble.json")
    for section in options.section or SECTIONS:
        for name, found in {"bubble": bubbles, "executor": executor}[section](options):
            report.add(name, found)
    draw(report.results, report.path.with_suffix(".png"))
    print(report.path.with_suffix(".md").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
