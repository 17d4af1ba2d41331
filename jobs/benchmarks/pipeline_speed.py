"""How fast hpcnn's two-stage pipeline in PyTorch is, beside torch.distributed.pipelining over gloo.

    bash env/with.sh torch python jobs/benchmarks/pipeline_speed.py            (about 20 minutes)
    bash env/with.sh torch python jobs/benchmarks/pipeline_speed.py --quick    (a minute, to see that it works)

It writes results/benchmarks/pipeline_speed.json and pipeline_speed.md. A contest that runs again replaces what it found
before. Let nothing else run on the machine meanwhile. programs.py says what is timed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from contest import Contest, Contestant, Ratio, hold
from programs import hpcnn, on_two_cores, parse, plain, read_hpcnn, read_plain, settings, train_files
from report import Report

SECTIONS = ("gpipe", "1f1b")
PLAIN = "jobs/plain/torch_pipeline_script.py"
FIRST_LAYER, PLACE = "conv3", 5
"""Where the second stage begins: its name, and its place in the plain script's list."""
MICRO_BATCHES = (4, 8)
EXPLANATION = """\
Two ranks of one thread, each on a core; the second stage begins at conv3. *pipelining* is
`jobs/plain/torch_pipeline_script.py`: the same layers, cut at the same place, the same batches and micro-batches, tuned
as hpcnn is (glibc kept from returning memory between steps, channels last). *single* is hpcnn with one process of one
thread on the whole network, for orientation.
"""


def contests(schedule: str, options: argparse.Namespace) -> Iterator[Contest]:
    for batch in options.batches or (64, 256):
        for pieces in MICRO_BATCHES[: 1 if options.quick else None]:
            sizes = batch, 1, options.epochs
            both = ("--schedule", schedule, "--micro-batches", str(pieces))
            ours = hpcnn(*sizes, "pipeline", "--backend", "torch", "--stages", FIRST_LAYER, *both)
            theirs = plain(PLAIN, *sizes, "--tuned", "--cut", str(PLACE), *both)
            alone = ("taskset", "-c", str(min(os.sched_getaffinity(0))), *hpcnn(*sizes, "single"))
            yield Contest(
                f"{schedule}, batch {batch} in {pieces} micro-batches",
                settings(
                    options, batch=batch, ranks=2, threads=1, micro_batches=pieces, schedule=schedule,
                    second_stage=FIRST_LAYER,
                ),
                (
                    Contestant("hpcnn", (on_two_cores(ours),), read_hpcnn, options.rows),
                    Contestant("pipelining", (on_two_cores(theirs),), read_plain, options.rows),
                    Contestant("single", (alone,), read_hpcnn, options.rows),
                ),
                (Ratio("hpcnn", "pipelining", 1.0), Ratio("hpcnn", "single")),
            )  # fmt: skip


def main() -> None:
    sizes = {"rows": (512, 5120), "rounds": (1, 7), "epochs": (2, 3), "batches": ([64], None)}
    options = parse("Measure the speed of hpcnn's pipeline with PyTorch.", SECTIONS, sizes)
    if options.rows % max(options.batches or (256,)):
        raise SystemExit(f"--rows {options.rows} is no multiple of the batch: pipelining has buffers of one size")
    options.out.mkdir(parents=True, exist_ok=True)
    report = Report(options.out / "pipeline_speed.json", "Speed of two stages", EXPLANATION, ("torch",))
    with tempfile.TemporaryDirectory() as folder:
        files = train_files(options, Path(folder))
        for section in options.section or SECTIONS:
            for contest in contests(section, options):
                report.add(contest.name, hold(contest, options.rounds, files))
    print(report.path.with_suffix(".md").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
