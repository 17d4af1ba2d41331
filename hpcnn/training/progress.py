"""What people see while a run goes on: a bar on rank 0's terminal (nowhere else), and the lines of results.log."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from typing import Any

from hpcnn.errors import ResultsError
from hpcnn.records.run_folder import LossRow

SECONDS_BETWEEN_LINES = 5.0
"""Under a launcher, which passes on whole lines only, so that a bar would be seen when all is over."""


def terminal_columns() -> int | None:
    """Width of the terminal that standard error is, None where it is none."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else None
    except (OSError, AttributeError, ValueError):  # closed
        return None


def launcher_on_terminal() -> bool:
    """Whether standard error is a pipe to mpirun, this process's parent, whose own ends in a terminal."""
    try:
        if "OMPI_COMM_WORLD_RANK" not in os.environ or not stat.S_ISFIFO(os.fstat(sys.stderr.fileno()).st_mode):
            return False
        beyond = os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except (OSError, AttributeError, ValueError):  # closed, or not ours to open
        return False
    try:
        return os.isatty(beyond)
    finally:
        os.close(beyond)


class Progress:
    """A bar over all steps of the run on a terminal, or a line every few seconds where the launcher is on one.

    Silent elsewhere, and where `shown` is false."""

    def __init__(self, *, shown: bool, epochs: int, steps: int, done: int = 0) -> None:
        self._bar: Any = None
        self._epochs, self._steps, self._done, self._first = epochs, steps, done, done
        columns = terminal_columns() if shown else None
        self._lines = shown and columns is None and launcher_on_terminal()
        self._began = self._last = time.monotonic()
        if columns is not None:
            from tqdm import tqdm

            width = columns - 1 if columns else None  # a terminal may not know its width
            self._bar = tqdm(total=steps, initial=done, unit="step", mininterval=0.2, leave=False, ncols=width)

    def step(self, row: LossRow) -> None:
        self._done += 1
        if self._bar is not None:
            self._bar.set_description(f"epoch {row.epoch}/{self._epochs}", refresh=False)
            self._bar.set_postfix_str(f"loss {row.train_loss:.4f}", refresh=False)
            self._bar.update()
        elif self._lines:
            self._step_line(row, time.monotonic())

    def _step_line(self, row: LossRow, now: float) -> None:
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            rate = (self._done - self._first) / (now - self._began)
            left = (self._steps - self._done) / rate
            print(
                f"epoch {row.epoch}/{self._epochs}, step {self._done}/{self._steps}, loss {row.train_loss:.4f}, "
                f"{rate:.1f} steps/s, {left:.0f} s left",
                file=sys.stderr, flush=True,
            )  # fmt: skip

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def say(line: str) -> None:
    """Print a line, above the bar where there is one. BrokenPipeError where whoever read it is gone (the launcher's end
    of a pipe, too), ResultsError where it cannot be written otherwise."""
    tqdm = sys.modules.get("tqdm")
    try:
        with tqdm.tqdm.external_write_mode() if tqdm else contextlib.nullcontext():
            print(line, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno == errno.EIO:
            raise BrokenPipeError from None
        raise ResultsError(f"standard output: {error.strerror}; send it elsewhere") from None


def step_line(row: LossRow) -> str:
    """A step as results.log keeps it."""
    line = (
        f"epoch {row.epoch} step {row.step} samples {row.samples} learning_rate {row.learning_rate:.6g} "
        f"loss {row.train_loss:.6f} accuracy {row.train_accuracy:.4f} gradient_norm {row.gradient_norm:.6g}"
    )
    if row.validation_loss is not None:
        line += f" validation_loss {row.validation_loss:.6f} validation_accuracy {row.validation_accuracy:.4f}"
    return line
