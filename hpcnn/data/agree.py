"""Failures on one rank become the same error on all, so that no rank waits in a collective that another never enters.

Work that may fail on one rank alone (reading, parsing) is done between collectives; `agree` is the collective in which
the ranks tell each other how it went.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from hpcnn.errors import HpcnnError

T = TypeVar("T")


class Communicator(Protocol):
    """What this room asks of a communicator; mpi4py's lower-case methods fit."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def allgather(self, sendobj: Any) -> list[Any]: ...

    def bcast(self, obj: Any, root: int = 0) -> Any: ...


class Alone:
    """The communicator of one process."""

    rank = 0
    size = 1

    def allgather(self, sendobj: Any) -> list[Any]:
        return [sendobj]

    def bcast(self, obj: Any, root: int = 0) -> Any:
        return obj


def communicator(comm: Communicator | None) -> Communicator:
    """`comm` itself, or that of one process for None."""
    return Alone() if comm is None else comm


def agree(comm: Communicator | None, error: HpcnnError | None) -> None:
    """Collective: raise the error of the lowest rank that has one on every rank; return where none has.

    Rows lie in the order of ranks, so the lowest rank's error is the first in the file.
    """
    for shared in communicator(comm).allgather(error):
        if shared is not None:
            same = error is not None and str(shared) == str(error)
            said = error if error is not None and same else shared  # its own keeps the traceback and the cause
            said.agreed = True
            raise said


def attempt(comm: Communicator | None, work: Callable[[], T]) -> T:
    """Collective: do this rank's `work`, then `agree`; returns this rank's result if all ranks succeeded.

    `work` must hold no collective. Errors other than `HpcnnError` are defects and pass through at once.
    """
    try:
        result = work()
    except HpcnnError as error:
        agree(comm, error)
        raise
    agree(comm, None)
    return result
