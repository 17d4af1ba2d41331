"""What a check found: what is so, why it matters, and the flag or command that mends it; for people and as JSON."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

LEVELS = ("ok", "warning", "error")
"""ok: as it should be. warning: a training would run, and be slower or less than was paid for. error: it would not run,
or not be the training that was asked for."""
WIDTH = 100


@dataclass(frozen=True)
class Finding:
    """`about`: the check, a word. `why` and `remedy` are empty where all is well."""

    level: str
    about: str
    what: str
    why: str = ""
    remedy: str = ""

    @property
    def line(self) -> str:
        """The refusal of a start that meets this."""
        told = ": ".join(filter(None, (self.what, self.why)))
        return "; ".join(filter(None, (told, self.remedy)))


def ok(about: str, what: str) -> Finding:
    return Finding("ok", about, what)


def worst(findings: Iterable[Finding]) -> str:
    """The gravest level; ok of nothing."""
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")


def render(title: str, findings: Sequence[Finding]) -> str:
    """A paragraph a finding, in the order of the checks, and what it comes to."""
    lines = [title]
    for finding in findings:
        lines += _wrapped(finding.what, f"{finding.level:<8} {finding.about:<9} ")
        for name, text in (("why", finding.why), ("mend", finding.remedy)):
            lines += _wrapped(text, f"{'':<19}{name}: ") if text else []
    return "\n".join([*lines, *_wrapped(_summary(findings), "")])


def _summary(findings: Sequence[Finding]) -> str:
    counts = {level: sum(finding.level == level for finding in findings) for level in ("error", "warning")}
    found = [count(number, level) for level, number in counts.items() if number]
    return f"{count(len(findings), 'finding')}: {' and '.join(found) or 'all is well'}"


def _wrapped(text: str, start: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def to_dict(findings: Sequence[Finding], ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`ranks`: what each of them told of itself."""
    return {
        "verdict": worst(findings),
        "findings": [dataclasses.asdict(finding) for finding in findings],
        "ranks": list(ranks),
    }


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0 to 3`, `ranks 0, 2, 5`; ascending."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
