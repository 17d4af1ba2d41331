"""What a benchmark leaves: one JSON file with everything, each section with its machine and time, and a table of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpcnn.records.files import write_json, write_text
from hpcnn.records.manifest import git_commit, machine, timestamp, versions

MEASURED = """\
Medians, with quartiles in brackets. A ratio is that of two programs within a round; rounds are turned (A B, B A, ...).
Measured are whole epochs of training steps after one that warms up.
"""
RAW = "The raw samples, with the commands, are in the JSON file beside this one.\n"


class Report:
    """The results in `path`, section by section. What ran before stays until a section of its name replaces it.

    `explanation`: of the programs' names, for the table; `frameworks`: whose versions it shows."""

    def __init__(self, path: Path, title: str, explanation: str, frameworks: Sequence[str]) -> None:
        self.path = path
        self.title, self.explanation, self.frameworks = title, explanation, frameworks
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
        write_text(self.path.with_suffix(".md"), self.table())

    def table(self) -> str:
        """Everything in `results`, for people."""
        explained = MEASURED + self.explanation + RAW
        return table(self.results, self.title, explained, self.frameworks)


def table(results: dict[str, Any], title: str, explained: str, frameworks: Sequence[str]) -> str:
    places = dict.fromkeys(place(section, frameworks) for section in results.values())
    head = "| measured | rows a second | ratio | target |\n|---|---|---|---|"
    rows = [row for name, section in results.items() for row in contest_rows(name, section)]
    lines = [f"# {title}", "", *places, "", explained, head, *rows]
    lines += side_by_side(results)
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


def side_by_side(results: dict[str, Any]) -> Iterator[str]:
    """Rates of all programs of a contest of more than two, the fastest first."""
    for name, section in results.items():
        programs = section.get("contestants", {})
        if len(programs) > 2:
            yield from ("", f"| {name} | rows a second |", "|---|---|")
            rates = {program: found["rows_per_second"] for program, found in programs.items()}
            for program in sorted(rates, key=lambda one: -rates[one]["median"]):
                yield f"| {program} | {bracketed(rates[program], '.0f')} |"


def place(section: dict[str, Any], frameworks: Sequence[str]) -> str:
    machine, version = section["machine"], section["versions"]
    shown = "".join(f"{name} {version.get(name) or version[f'{name}-cpu']}, " for name in frameworks)
    return (
        f"{machine['processor']}, {len(machine['affinity'])} cores; Python {version['python']}, "
        f"{shown}NumPy {version['numpy']}; commit {section['git_commit']}, {section['date'][:10]}."
    )
