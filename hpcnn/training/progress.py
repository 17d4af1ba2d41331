"""What people see while a run goes on: a bar on rank 0's terminal (nowhere else), and the lines of results.log."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from typing import Any

from hpcnn.records.run_folder import LossRow


def terminal_columns() -> int | None:
    """Width of the terminal that standard error ends in, None where it is none.

    Under mpirun a rank's standard error is a pipe to the launcher, its parent, which passes on what it reads: what
    counts is where the launcher's ends.
    """
    try:
        if sys.stderr.isatty():
            return os.get_terminal_size(sys.stderr.fileno()).columns
        if "OMPI_COMM_WORLD_RANK" not in os.environ or not stat.S_ISFIFO(os.fstat(sys.stderr.fileno()).st_mode):
            return None
        beyond = os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except (OSError, AttributeError, ValueError):  # closed, or not ours to open
        return None
    try:
        return os.get_terminal_size(beyond).columns if os.isatty(beyond) else None
    except OSError:
        return None
    finally:
        os.close(beyond)


class Progress:
    """A bar over all steps of the run. Silent where `shown` is false or standard error ends in no terminal."""

    def __init__(self, *, shown: bool, epochs: int, steps: int, done: int = 0) -> None:
        self._bar: Any = None
        self._epochs = epochs
        columns = terminal_columns() if shown else None
        if columns is not None:
            from tqdm import tqdm

            width = columns - 1 if columns else None  # a terminal may not know its width
            self._bar = tqdm(total=steps, initial=done, unit="step", mininterval=0.2, leave=False, ncols=width)

    def step(self, row: LossRow) -> None:
        if self._bar is not None:
            self._bar.set_description(f"epoch {row.epoch}/{self._epochs}", refresh=False)
            self._bar.set_postfix_str(f"loss {row.train_loss:.4f}, accuracy {row.train_accuracy:.1%}", refresh=False)
            self._bar.update()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def say(line: str) -> None:
    """Print a line, above the bar where there is one."""
    tqdm = sys.modules.get("tqdm")
    with tqdm.tqdm.external_write_mode() if tqdm else contextlib.nullcontext():
        print(line, flush=True)


def step_line(row: LossRow) -> str:
    """A step as results.log keeps it."""
    line = (
        f"epoch {row.epoch} step {row.step} samples {row.samples} learning_rate {row.learning_rate:.6g} "
        f"loss {row.train_loss:.6f} accuracy {row.train_accuracy:.4f} gradient_norm {row.gradient_norm:.6g}"
    )
    if row.validation_loss is not None:
        line += f" validation_loss {row.validation_loss:.6f} validation_accuracy {row.validation_accuracy:.4f}"
    return line
