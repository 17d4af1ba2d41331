"""What reducers that round, or add otherwise, do to accuracy on the shipped data: beside exact sums, mean over seeds.

    bash env/with.sh torch python jobs/benchmarks/wire_accuracy.py            (three minutes)
    bash env/with.sh torch python jobs/benchmarks/wire_accuracy.py --quick    (a minute: one seed, an epoch of few rows)

It writes results/benchmarks/wire_accuracy.json and wire_accuracy.md. Horovod takes part where it is installed. Nothing
is timed, so other programs may run meanwhile.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from contest import REPOSITORY, launched, start_together
from programs import NETWORK, head_of, hpcnn, on_two_cores
from report import Report, place

BATCH = 50
POINTS = 2.0
"""How far below exact sums the mean accuracy may be."""
EXACT = "mpi"
WAYS = {
    EXACT: (),
    "mpi, wire=float16": ("--reducer-option", "wire=float16"),
    "mpi, wire=bfloat16": ("--reducer-option", "wire=bfloat16"),
}
OF_HOROVOD = {
    "horovod, compression=fp16": ("--reducer", "horovod", "--reducer-option", "compression=fp16"),
    "horovod, op=adasum": ("--reducer", "horovod", "--reducer-option", "op=adasum"),
}
TITLE = "Accuracy with rounded sums"


class AccuracyReport(Report):
    """As any benchmark's, with a table of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, TITLE, "", ("torch",))

    def table(self) -> str:
        section = self.results["accuracy"]
        of = section["settings"]
        seeds = ", ".join(map(str, of["seeds"]))
        lines = [
            f"# {TITLE}",
            "",
            place(section, self.frameworks),
            "",
            f"`{of['network']}` on two ranks, {of['rows']} rows an epoch, epochs: {of['epochs']}; Adam, rate 0.001,",
            f"global batch {BATCH}; tested on {of['test_rows']} rows. Target: at most {POINTS:g} points below exact",
            f"sums, in the mean of the seeds {seeds}.",
            "",
            "| reducer | accuracy, mean | of each seed | points apart |",
            "|---|---|---|---|",
        ]
        for name, one in section["ways"].items():
            each = " ".join(f"{value:.2%}" for value in one["accuracy"])
            lines.append(f"| {name} | {one['mean']:.2%} | {each} | {one['points_apart']:+.2f} |")
        return "\n".join(lines) + "\n"


def trained(flags: tuple[str, ...], seed: int, options: argparse.Namespace, files: dict[str, Path]) -> float:
    """Accuracy on the test rows."""
    own = ("--test", "TEST.csv", "--seed", str(seed), *flags)
    command = on_two_cores(hpcnn(BATCH, 1, options.epochs, "data", *own))
    with tempfile.TemporaryDirectory() as folder:
        start_together([launched(command, Path(folder), files)])
        found = json.loads(Path(folder, "run", "run.json").read_text(encoding="utf-8"))
    return float(found["test"]["accuracy"])


def accuracies(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All ways with all seeds."""
    files = {"ROWS.csv": head_of(options.train, options.rows, folder / "rows.csv"), "TEST.csv": options.test}
    ways = WAYS | (OF_HOROVOD if importlib.util.find_spec("horovod") else {})
    found: dict[str, Any] = {}
    for name, flags in ways.items():
        values = [trained(flags, seed, options, files) for seed in options.seeds]
        print(f"{name}: {mean(values):.2%}", flush=True)
        apart = 100 * (mean(values) - found[EXACT]["mean"]) if found else 0.0
        found[name] = {
            "flags": " ".join(flags), "accuracy": values, "mean": mean(values), "points_apart": apart,
            "reached": apart >= -POINTS,
        }  # fmt: skip
    with open(options.test, encoding="utf-8") as stream:
        tested = sum(1 for _ in stream) - 1
    own = {"network": NETWORK, "rows": options.rows, "epochs": options.epochs, "seeds": options.seeds, "batch": BATCH}
    return {"settings": {**own, "ranks": 2, "test_rows": tested, "target_points": POINTS}, "ways": found}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train with reducers that round, and with exact ones.")
    parser.add_argument("--quick", action="store_true", help="one seed, one epoch of 300 rows")
    parser.add_argument("--rows", type=int, help="of an epoch (default: 6000; --quick: 300)")
    parser.add_argument("--epochs", type=int, help="(default: 3; --quick: 1)")
    parser.add_argument("--seeds", type=int, nargs="+", help="(default: 1 2 3; --quick: 1)")
    parser.add_argument("--train", type=Path, default=REPOSITORY / "data" / "train.csv", metavar="CSV")
    parser.add_argument("--test", type=Path, default=REPOSITORY / "data" / "test.csv", metavar="CSV")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "benchmarks", metavar="FOLDER")
    options = parser.parse_args()
    options.rows = options.rows or (300 if options.quick else 6000)
    options.epochs = options.epochs or (1 if options.quick else 3)
    options.seeds = options.seeds or ([1] if options.quick else [1, 2, 3])
    return options


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    report = AccuracyReport(options.out / "wire_accuracy.json")
    with tempfile.TemporaryDirectory() as folder:
        report.add("accuracy", accuracies(options, Path(folder)))
    print(report.path.with_suffix(".md").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
