"""What a ReLU and a max pool with the slopes of every backend cost in Theano, beside those that Theano has.

    bash env/with.sh lasagne python jobs/benchmarks/theano_operations.py            (a minute)
    bash env/with.sh lasagne python jobs/benchmarks/theano_operations.py --quick    (few images and calls)

It writes results/benchmarks/theano_operations.json and theano_operations.md. Each operation is a function of its own on
one thread; those of one kind take turns in each round. Let nothing else run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
from contest import REPOSITORY
from report import Report, bracketed, place

from hpcnn.network.layers import MaxPool2D
from hpcnn.wrappers.registry import open_backend

SHAPE = (64, 48, 28, 28)
TITLE = "Operations in Theano"
EXPLANATION = """\
Milliseconds a call on 64 x 48 images of 28 x 28 (--quick: 4 x 48), on one thread: medians of rounds, with quartiles in
brackets. *hpcnn*: `hpcnn/wrappers/theano_ops.py`; *Theano's own*: theano.tensor.nnet.relu and tensor.signal.pool,
whose slopes are others; *switches*: the same from theano.tensor.switch, whose slopes are hpcnn's. Pools have size 2. A
gradient is that of the input, from the output's, with what it has to compute again.
"""
Way = Callable[[Any], Any]


class OperationsReport(Report):
    """As any benchmark's, with a table of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, TITLE, EXPLANATION, ("theano",))

    def table(self) -> str:
        places = dict.fromkeys(place(section, self.frameworks) for section in self.results.values())
        lines = [
            f"# {TITLE}",
            "",
            *places,
            "",
            EXPLANATION,
            "| operation | forward, ms | gradient, ms |",
            "|---|---|---|",
        ]
        for name, section in self.results.items():
            for way, found in section["ways"].items():
                cells = " | ".join(bracketed(found[part], ".2f") for part in ("forward", "gradient"))
                lines.append(f"| {name}, {way} | {cells} |")
        return "\n".join(lines) + "\n"


def operations() -> Iterator[tuple[str, dict[str, Way]]]:
    """By kind; the backend has to be open."""
    from theano import tensor
    from theano.tensor.signal import pool

    from hpcnn.wrappers import theano_ops

    def switched_relu(x: Any) -> Any:
        return tensor.switch(x <= 0, tensor.zeros_like(x), x)

    def switched_pool(x: Any) -> Any:
        cells = [x[:, :, row::2, column::2] for row in (0, 1) for column in (0, 1)]
        best = cells[0]
        for cell in cells[1:]:
            best = tensor.switch(cell > best, cell, best)
        return best

    yield "ReLU", {"hpcnn": theano_ops.relu, "Theano's own": tensor.nnet.relu, "switches": switched_relu}
    yield (
        "max pool",
        {
            "hpcnn": theano_ops.first_max_pool(MaxPool2D(size=2)),
            "Theano's own": lambda x: pool.pool_2d(x, (2, 2), ignore_border=True, mode="max"),
            "switches": switched_pool,
        },
    )


def compiled(way: Way, images: Any) -> dict[str, Callable[[], Any]]:
    """Calls of the operation, and of its gradient, on `images`."""
    import theano

    x, slope = theano.tensor.tensor4("x", "float32"), theano.tensor.tensor4("slope", "float32")
    y = way(x)

    def function(inputs: list[Any], output: Any) -> Any:
        ends = [theano.In(one, borrow=True) for one in inputs]
        return theano.function(ends, theano.Out(output, borrow=True), on_unused_input="ignore")

    forward, gradient = function([x], y), function([x, slope], theano.tensor.Lop(y, x, slope))
    given = np.ones_like(forward(images))
    return {"forward": lambda: forward(images), "gradient": lambda: gradient(images, given)}


def timed(ways: dict[str, Way], options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of each way and part, every round in the other order."""
    images = np.maximum(np.random.default_rng(1).standard_normal(options.images), 0, dtype=np.float32)
    calls = [(name, part, call) for name, way in ways.items() for part, call in compiled(way, images).items()]
    samples: dict[str, dict[str, list[float]]] = {name: {"forward": [], "gradient": []} for name in ways}
    for turn in range(options.rounds):
        for name, part, call in calls[:: 1 if turn % 2 else -1]:
            call()
            began = time.perf_counter()
            for _ in range(options.times):
                call()
            samples[name][part].append(1e3 * (time.perf_counter() - began) / options.times)
    return {name: {part: summary(found) for part, found in parts.items()} for name, parts in samples.items()}


def summary(samples: list[float]) -> dict[str, Any]:
    lower, _, upper = quantiles(samples, n=4, method="inclusive")
    return {"median": median(samples), "lower_quartile": lower, "upper_quartile": upper, "samples": samples}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure ReLU and max pool in Theano.")
    parser.add_argument("--quick", action="store_true", help="few images, rounds and calls")
    parser.add_argument("--rounds", type=int, help="turns of each operation (default: 15; --quick: 2)")
    parser.add_argument("--times", type=int, help="calls of a turn (default: 20; --quick: 2)")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "benchmarks", metavar="FOLDER")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 15)
    options.times = options.times or (2 if options.quick else 20)
    options.images = (4, *SHAPE[1:]) if options.quick else SHAPE
    return options


def main() -> None:
    options = parse()
    open_backend("lasagne", threads=1)
    report = OperationsReport(options.out / "theano_operations.json")
    settings = {"images": list(options.images), "rounds": options.rounds, "times": options.times, "threads": 1}
    for name, ways in operations():
        report.add(name, {"settings": settings, "ways": timed(ways, options)})
    print(report.table())


if __name__ == "__main__":
    main()
