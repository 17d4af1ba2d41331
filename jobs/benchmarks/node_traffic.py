"""Bytes between two nodes: sums that begin inside a node beside those over all ranks at once, counted on the interface.

    bash env/with.sh torch python jobs/benchmarks/node_traffic.py            (two minutes)
    bash env/with.sh torch python jobs/benchmarks/node_traffic.py --quick    (half a minute, small messages)

The nodes are virtual (two_nodes.py: root, and iproute2), two ranks on each. It writes results/benchmarks/
node_traffic.json and node_traffic.md. Bytes are exact; times are those of four ranks on this machine's cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contest import REPOSITORY, launched, start_together
from programs import head_of, hpcnn, hpcnn_epochs
from report import Report, place
from two_nodes import TwoNodes, two_nodes

SECTIONS = ("sums", "training")
MAPPINGS = {"one node after the other": "slot", "in turns": "node"}
"""How ranks are numbered over the nodes, as mpirun's --map-by has it. What a flat sum sends depends on it."""
NETWORK, BATCH, EPOCHS = "cnn2d_2layer_fullconnected_2layer", 256, 2
TITLE = "Traffic between two nodes"
EXPLANATION = """\
Two virtual nodes (network namespaces) of two ranks each, the cable between them limited. *nodes*: the ranks of a node
add first, through their memory, and each node sends its sum once; *flat*: one Allreduce over all ranks; *plain*: the
same, blocking; *float16*: messages of 16 bits a number. Bytes are the interface's, both directions, headers included.
"""


class TrafficReport(Report):
    """As any benchmark's, with tables of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, TITLE, EXPLANATION, ())

    def table(self) -> str:
        places = dict.fromkeys(place(section, ()) for section in self.results.values())
        lines = [f"# {TITLE}", "", *places, "", EXPLANATION]
        for name, section in self.results.items():
            lines += [f"## {name}, {section['settings']['rate']}", "", "| reducer | MB | of flat's | seconds |"]
            lines += ["|---|---|---|---|", *_rows(section["ways"]), ""]
        return "\n".join(lines)


def _rows(ways: dict[str, Any]) -> Iterator[str]:
    for way, one in ways.items():
        share = one["bytes"] / ways["flat"]["bytes"]
        yield f"| {way} | {one['bytes'] / 1e6:.2f} | {share:.3f} | {one['seconds']:.3f} |"


def sums(nodes: TwoNodes, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of one message, by each way and numbering of ranks."""
    for mapping, map_by in MAPPINGS.items():
        with tempfile.TemporaryDirectory() as folder:
            flags = ("--bytes", str(options.bytes), "--times", str(options.times))
            words = ("python", "jobs/benchmarks/sum_traffic.py", "OUT/found.json", *flags)
            start_together([launched(nodes.mpirun(*words, map_by=map_by), Path(folder), {})])
            found = json.loads(Path(folder, "found.json").read_text(encoding="utf-8"))
        settings = {
            "rate": options.rate,
            "message_bytes": options.bytes,
            "times": options.times,
            "hosts": found["hosts"],
        }
        ways = found["ways"]
        yield (
            f"a sum of {options.bytes / 2**20:g} MiB, ranks {mapping}",
            {"settings": settings, "ways": ways, "fewer": ways["nodes"]["bytes"] < ways["flat"]["bytes"]},
        )


def training(nodes: TwoNodes, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """A step of a training, mean over the run; what a run sends when it starts and ends is in it."""
    steps = -(-options.rows // BATCH)
    ways: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = {"ROWS.csv": head_of(options.train, options.rows, folder / "rows.csv")}
        for algorithm in ("nodes", "flat"):
            flags = ("--reducer", "mpi", "--reducer-option", f"algorithm={algorithm}")
            command = hpcnn(BATCH, 1, EPOCHS, "data", *flags, network=NETWORK, out=f"OUT/{algorithm}")
            before = nodes.traffic()
            start_together([launched(nodes.mpirun(*command), folder, files)])
            sent = nodes.traffic() - before
            seconds = hpcnn_epochs(folder / algorithm / "run")[-1] / steps
            ways[algorithm] = {"bytes": sent / (steps * EPOCHS), "seconds": seconds, "command": " ".join(command)}
            print(f"training, {algorithm}: {sent / 1e6:.1f} MB", flush=True)
    settings = {"rate": options.rate, "network": NETWORK, "batch": BATCH, "rows": options.rows, "epochs": EPOCHS}
    fewer = ways["nodes"]["bytes"] < ways["flat"]["bytes"]
    yield f"a step of {NETWORK}, batch {BATCH}", {"settings": settings, "ways": ways, "fewer": fewer}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Count the bytes that reducers send between two nodes.")
    parser.add_argument("--quick", action="store_true", help="a message of 1 MiB, a training of two steps an epoch")
    parser.add_argument("--section", action="append", choices=SECTIONS, help="only this one (may be repeated)")
    parser.add_argument("--rate", default="1gbit", help="of the cable, as tc has it (default: 1gbit)")
    parser.add_argument("--bytes", type=int, help="of a message (default: 16 MiB; --quick: 1 MiB)")
    parser.add_argument("--times", type=int, help="sums that are counted (default: 5; --quick: 2)")
    parser.add_argument("--rows", type=int, help="of a training's epoch (default: 2048; --quick: 512)")
    parser.add_argument("--train", type=Path, default=REPOSITORY / "data" / "train.csv", metavar="CSV")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "benchmarks", metavar="FOLDER")
    options = parser.parse_args()
    options.bytes = options.bytes or 2 ** (20 if options.quick else 24)
    options.times = options.times or (2 if options.quick else 5)
    options.rows = options.rows or (512 if options.quick else 2048)
    return options


def main() -> None:
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    report = TrafficReport(options.out / "node_traffic.json")
    with two_nodes(options.rate) as nodes:
        for section in options.section or SECTIONS:
            for name, found in {"sums": sums, "training": training}[section](nodes, options):
                report.add(name, found)
    print(report.path.with_suffix(".md").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
