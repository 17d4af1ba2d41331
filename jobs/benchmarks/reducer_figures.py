"""The tables of reducer_speed.py's results: those of any contest, bandwidths of sums, and what is exposed of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from report import Report, bracketed

EXPLANATION = """\
Two ranks of one thread, each on a core. *mpi*, *plain*, *horovod*, *native*: hpcnn with that `--reducer`. *DDP* and
*Horovod* are `jobs/plain/torch_script.py` with `--ddp` and `--horovod`; *tuned*: with hpcnn's allocator and memory
format, *defaults*: as PyTorch comes. *two alone*: two processes that do not talk, each on half of the batch.
"""
SUMS = """
## Sums alone

Nothing is computed meanwhile. *bare*: `Allreduce` of mpi4py in the same process; *nodes* and *flat*: the algorithms of
mpi, of which a run on one node takes nodes. Bandwidth is the message's bytes over the seconds of its sum.

| message | sum | GB a second | ratio | target |
|---|---|---|---|---|"""
EXPOSED = """
| program | step, ms | communicate and wait by the clock, ms | beyond two alone, ms |
|---|---|---|---|"""
JUDGED = """
| exposed communication | median | target |
|---|---|---|"""


class ReducerReport(Report):
    """As any benchmark's, with two tables more."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "Speed of the reducers", EXPLANATION, ("torch",))

    def table(self) -> str:
        lines = [super().table().rstrip("\n")]
        for name, section in self.results.items():
            if sums := section.get("sums"):
                lines += [SUMS, *_sums(sums)]
            if exposed := section.get("exposed"):
                lines += [f"\n## Exposed communication: {name}", EXPOSED, *_exposed(exposed)]
                lines += [JUDGED, *_judged(exposed["judged"])]
        return "\n".join(lines) + "\n"


def _sums(sums: list[dict[str, Any]]) -> Iterator[str]:
    for one in sums:
        rates = " / ".join(bracketed(one["bandwidth"][side], ".2f") for side in (one["of"], one["over"]))
        target = "" if one["target"] is None else f"at least {one['target']:g}"
        ratio = bracketed(one, ".2f")
        yield f"| {one['bytes'] / 1024:,.0f} KiB | {one['of']} over {one['over']} | {rates} | {ratio} | {target} |"


def _exposed(exposed: dict[str, Any]) -> Iterator[str]:
    for name, step in exposed["step_seconds"].items():
        clock, beyond = (
            bracketed(_milliseconds(exposed[kind][name]), ".1f") if name in exposed[kind] else ""
            for kind in ("by_the_clock", "beyond_two_alone")
        )
        yield f"| {name} | {bracketed(_milliseconds(step), '.1f')} | {clock} | {beyond} |"


def _milliseconds(found: dict[str, Any]) -> dict[str, float]:
    return {name: 1000 * value for name, value in found.items() if isinstance(value, float)}


def _judged(judged: list[dict[str, Any]]) -> Iterator[str]:
    for one in judged:
        yield f"| {one['what']} | {bracketed(one, '.4f')} | at most {one['at_most']:g} |"
