"""What a benchmark leaves: one JSON file with everything, each section with its machine and time, and a table of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpcnn.records.files import write_json, write_text
from hpcnn.records.manifest import git_commit, machine, timestamp, versions

EXPLANATION = """\
Medians, with quartiles in brackets. A ratio is that of two programs within a round; rounds are turned (A B, B A, ...).
Measured are whole epochs of training steps after one that warms up. *plain* is `jobs/plain/torch_script.py` at
PyTorch's defaults; *allocator*: with glibc kept from returning memory between steps; *channels last*: with that memory
format; *tuned*: with both, as hpcnn is. *two alone*: two processes that do not talk, each on half of the batch.
The raw samples, with the commands, are in the JSON file beside this one.
"""


class Report:
    """The results in `path`, section by section. What ran before stays until a section of its name replaces it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        # Once, before the first section is written: that would make the checkout look changed.
        self.environment = {
            "git_commit": git_commit(),
            "command": " ".join(["python", "jobs/benchmarks/" + Path(sys.argv[0]).name, *sys.argv[1:]]),
            "machine": {name: value for name, value in machine().items() if name != "host"},
            "versions": versions(),
        }

    def add(self, name: str, found: dict[str, Any]) -> None:
        """Put section `name` in and write both files, whole."""
        self.results[name] = {"date": timestamp(), **self.environment, **found}
        write_json(self.path, self.results)
        write_text(self.path.with_suffix(".md"), table(self.results))


def table(results: dict[str, Any]) -> str:
    places = dict.fromkeys(place(section) for section in results.values())
    head = "| measured | rows a second | ratio | target |\n|---|---|---|---|"
    rows = [row for name, section in results.items() for row in contest_rows(name, section)]
    lines = ["# Speed with PyTorch", "", *places, "", EXPLANATION, head, *rows]
    seconds = [row for section in results.values() for row in startup_rows(section)]
    if seconds:
        lines += ["", "| started and ended | seconds | target |\n|---|---|---|", *seconds]
    return "\n".join(lines) + "\n"


def contest_rows(name: str, section: dict[str, Any]) -> Iterator[str]:
    for ratio in section.get("ratios", ()):
        rates = [section["contestants"][side]["rows_per_second"] for side in (ratio["of"], ratio["over"])]
        shown = " / ".join(bracketed(rate, ".0f") for rate in rates)
        target = "" if ratio["target"] is None else f"at least {ratio['target']:g}"
        yield f"| {name}: {ratio['of']} over {ratio['over']} | {shown} | {bracketed(ratio, '.3f')} | {target} |"


def startup_rows(section: dict[str, Any]) -> Iterator[str]:
    for what, taken in section.get("seconds", {}).items():
        target = "" if taken["target"] is None else f"below {taken['target']:g}"
        yield f"| {what} | {bracketed(taken, '.3f')} | {target} |"


def bracketed(found: dict[str, float], form: str) -> str:
    return f"{found['median']:{form}} ({found['lower_quartile']:{form}} to {found['upper_quartile']:{form}})"


def place(section: dict[str, Any]) -> str:
    machine, version = section["machine"], section["versions"]
    return (
        f"{machine['processor']}, {len(machine['affinity'])} cores; Python {version['python']}, "
        f"torch {version['torch']}, NumPy {version['numpy']}; commit {section['git_commit']}, {section['date'][:10]}."
    )
