"""A program: the list of operations that one rank carries out in one training step, as plain data.

A strategy makes it; it is checked, printed, executed and traced, each by a module of its own. Operations have a text
form, a letter, the segment and the micro-batch:

    F0.2   forward of segment 0 on micro-batch 2        A1.2   accept segment 1's input from the segment before it
    B0.2   backward of segment 0 on micro-batch 2       S0.2   send segment 0's output to the segment after it
    L1.2   loss and backward of the last segment        G0.2   get the gradient of segment 0's output from there
                                                        T1.2   transmit the gradient of segment 1's input back
    I0.2   backward to the input alone
    J1.2   loss and backward to the input alone         R0     add the gradient of segment 0 across its replicas
    W0.2   the weights' gradient that I or J left       P0     post that reduction, to go on meanwhile; C0 completes it
    N0     all of a step but the update, by the         H0     hand the loss to all stages of the replica
           framework's own parallelism
                                                        U0     update segment 0

S0.2 and A1.2 are the two ends of one message, T1.2 and G0.2 those of another.
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
    BACKWARD_INPUT = "I"
    LOSS_INPUT = "J"
    BACKWARD_WEIGHTS = "W"
    ACCEPT = "A"
    SEND = "S"
    GET = "G"
    TRANSMIT = "T"
    REDUCE = "R"
    POST = "P"
    COMPLETE = "C"
    SHARE = "H"
    UPDATE = "U"
    NATIVE = "N"

    @property
    def words(self) -> str:
        """In words, for messages."""
        return self.name.lower().replace("_", " ")


COMPUTING = (
    Kind.FORWARD, Kind.LOSS, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.LOSS_INPUT, Kind.BACKWARD_WEIGHTS, Kind.NATIVE,
)  # fmt: skip
SENDING = (Kind.SEND, Kind.TRANSMIT)
RECEIVING = (Kind.ACCEPT, Kind.GET)
OF_REPLICAS = (Kind.REDUCE, Kind.POST, Kind.NATIVE)
"""Collectives of the ranks that hold the same segment."""

_ON_MICRO_BATCH = (*(kind for kind in COMPUTING if kind is not Kind.NATIVE), *SENDING, *RECEIVING)
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

    @property
    def other_end(self) -> Operation:
        """The operation at the other end of a message. ValueError for what is no message."""
        kind, step = _OTHER_ENDS.get(self.kind, (None, 0))
        if kind is None:
            raise ValueError(f"{self} is no message")
        return Operation(kind, self.segment + step, self.micro_batch)


_OTHER_ENDS = {
    Kind.SEND: (Kind.ACCEPT, 1),
    Kind.ACCEPT: (Kind.SEND, -1),
    Kind.TRANSMIT: (Kind.GET, -1),
    Kind.GET: (Kind.TRANSMIT, 1),
}

Program = tuple[Operation, ...]


def stage_of(segment: int, stages: int) -> int:
    """The stage that holds a segment: with more segments than stages they go round (interleaved schedules)."""
    return segment % stages


def parse_operation(text: str) -> Operation:
    """Inverse of `str(operation)`. Raises ConfigError for anything else."""
    match = _TEXT.fullmatch(text)
    letters = [kind.value for kind in Kind]
    if match is None or match[1] not in letters:
        raise ConfigError(f"{text!r} is not an operation: letters are {', '.join(letters)}, as in F0.2 or U0")
    kind, micro_batch = Kind(match[1]), match[3]
    if (kind in _ON_MICRO_BATCH) != (micro_batch is not None):
        raise ConfigError(f"{text!r}: {kind.words} {'needs' if kind in _ON_MICRO_BATCH else 'has no'} micro-batch")
    return Operation(kind, int(match[2]), None if micro_batch is None else int(micro_batch))


def parse_program(text: str) -> Program:
    """Operations separated by blanks."""
    return tuple(parse_operation(word) for word in text.split())


def program_text(program: Program) -> str:
    """The program on one line; `parse_program` reads it back."""
    return " ".join(map(str, program))
