"""What sums over ranks cost a training step beyond what hides behind computing, in two ways that are both told.

By the clock: what timing.csv has under communicate and wait, mean over ranks. Only hpcnn's programs have it. It leaves
out what a reducer takes from the computing beside it: its thread's time on the rank's core, its share of the memory.

Beyond two alone: seconds of a step, less those of two processes of the same program that do not talk, each on its half
of the rows, in the same round. Every program has that, and all that the parallelism costs is in it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from contest import WARM_UP_EPOCHS, Epochs, spread
from programs import read_hpcnn

TALKING = ("communicate", "wait")


class Clocked:
    """Reads hpcnn's epochs, as a contestant does, and keeps the seconds under `TALKING` of each turn."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def reader(self, name: str, steps: int) -> Callable[[Path], list[Epochs]]:
        """For the contestant of that name, whose epochs have so many steps."""

        def read(folder: Path) -> list[Epochs]:
            self.seconds[name].append(talking(folder / "run" / "timing.csv") / steps)
            return read_hpcnn(folder)

        return read


def talking(timing: Path) -> float:
    """Seconds of an epoch after warm-up, mean over epochs and ranks."""
    seconds: dict[tuple[str, str], float] = {}
    with open(timing, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if int(row["epoch"]) > WARM_UP_EPOCHS:
                key = row["epoch"], row["rank"]
                seconds[key] = seconds.get(key, 0.0) + float(row["seconds"]) * (row["phase"] in TALKING)
    return mean(seconds.values())


def step_seconds(samples: Iterable[Mapping[str, Any]], steps: int) -> list[float]:
    """Of each turn, in its slowest process. `samples`: as contest.run has them."""
    return [max(mean(epochs[WARM_UP_EPOCHS:]) for epochs in sample["epoch_seconds"]) / steps for sample in samples]


def exposed(
    held: Mapping[str, Any], clocked: Clocked, alone: Mapping[str, str], steps: int, half: tuple[str, str], no_more: str
) -> dict[str, Any]:
    """What a contest that was held comes to. `alone`: of each contestant that talks, which does not. `half`: the clock
    of the first is to be at most half that of the second; beyond two alone it is to cost no more than `no_more`."""
    seconds = {name: step_seconds(one["samples"], steps) for name, one in held["contestants"].items()}
    beyond = {
        name: [mine - theirs for mine, theirs in zip(seconds[name], seconds[other], strict=True)]
        for name, other in alone.items()
    }
    ours, reference = (clocked.seconds[name] for name in half)
    shares = [mine / theirs for mine, theirs in zip(ours, reference, strict=True)]
    more = [mine - theirs for mine, theirs in zip(beyond[half[0]], beyond[no_more], strict=True)]
    return {
        "step_seconds": {name: spread(values) for name, values in seconds.items()},
        "by_the_clock": {name: spread(values) | {"rounds": values} for name, values in clocked.seconds.items()},
        "beyond_two_alone": {name: spread(values) | {"rounds": values} for name, values in beyond.items()},
        "judged": [
            judged(f"{half[0]} over {half[1]}, by the clock", shares, 0.5),
            judged(f"{half[0]} less {no_more}, seconds a step beyond two alone", more, 0.0),
        ],
    }


def judged(what: str, rounds: list[float], at_most: float) -> dict[str, Any]:
    found = spread(rounds)
    return {"what": what, **found, "at_most": at_most, "rounds": rounds, "reached": found["median"] <= at_most}
