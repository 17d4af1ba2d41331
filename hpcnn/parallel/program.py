"""A program: the list of operations that one rank carries out in one training step, as plain data.

A strategy makes it; it is printed, executed and traced, each by a module of its own. Operations have a text form:

    F0.2   forward of segment 0 on micro-batch 2        R0     add the gradient of segment 0 across its replicas
    B0.2   backward of segment 0 on micro-batch 2       U0     update segment 0
    L0.2   loss and backward of segment 0, the last, on micro-batch 2
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from hpcnn.errors import ConfigError


class Kind(StrEnum):
    """What an operation does; the value is its letter."""

    FORWARD = "F"
    LOSS = "L"
    BACKWARD = "B"
    REDUCE = "R"
    UPDATE = "U"


_ON_MICRO_BATCH = (Kind.FORWARD, Kind.LOSS, Kind.BACKWARD)
_NUMBER = r"(0|[1-9][0-9]{0,8})"
_TEXT = re.compile(rf"([A-Z]){_NUMBER}(?:\.{_NUMBER})?")


@dataclass(frozen=True)
class Operation:
    """One entry of a program. `micro_batch` is None for what concerns a whole step."""

    kind: Kind
    segment: int
    micro_batch: int | None = None

    def __str__(self) -> str:
        place = "" if self.micro_batch is None else f".{self.micro_batch}"
        return f"{self.kind.value}{self.segment}{place}"


Program = tuple[Operation, ...]


def parse_operation(text: str) -> Operation:
    """Inverse of `str(operation)`. Raises ConfigError for anything else."""
    match = _TEXT.fullmatch(text)
    letters = [kind.value for kind in Kind]
    if match is None or match[1] not in letters:
        raise ConfigError(f"{text!r} is not an operation: letters are {', '.join(letters)}, as in F0.2 or U0")
    kind, micro_batch = Kind(match[1]), match[3]
    if (kind in _ON_MICRO_BATCH) != (micro_batch is not None):
        raise ConfigError(
            f"{text!r}: {kind.name.lower()} {'needs' if kind in _ON_MICRO_BATCH else 'has no'} micro-batch"
        )
    return Operation(kind, int(match[2]), None if micro_batch is None else int(micro_batch))


def parse_program(text: str) -> Program:
    """Operations separated by blanks."""
    return tuple(parse_operation(word) for word in text.split())


def program_text(program: Program) -> str:
    """The program on one line; `parse_program` reads it back."""
    return " ".join(map(str, program))
