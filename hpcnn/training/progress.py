"""What people see while a run goes on: a bar on rank 0's terminal (nowhere else), and the lines of results.log."""

from __future__ import annotations

import sys
from typing import Any

from hpcnn.records.run_folder import LossRow


class Progress:
    """A bar over all steps of the run. Silent where `shown` is false or standard error is no terminal."""

    def __init__(self, *, shown: bool, epochs: int, steps: int, done: int = 0) -> None:
        self._bar: Any = None
        self._epochs = epochs
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=steps, initial=done, unit="step", dynamic_ncols=True, mininterval=0.2, leave=False)

    def step(self, row: LossRow) -> None:
        if self._bar is not None:
            self._bar.set_description(f"epoch {row.epoch}/{self._epochs}", refresh=False)
            self._bar.set_postfix_str(f"loss {row.train_loss:.4f}, accuracy {row.train_accuracy:.1%}", refresh=False)
            self._bar.update()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def step_line(row: LossRow) -> str:
    """A step as results.log keeps it."""
    line = (
        f"epoch {row.epoch} step {row.step} samples {row.samples} learning_rate {row.learning_rate:.6g} "
        f"loss {row.train_loss:.6f} accuracy {row.train_accuracy:.4f} gradient_norm {row.gradient_norm:.6g}"
    )
    if row.validation_loss is not None:
        line += f" validation_loss {row.validation_loss:.6f} validation_accuracy {row.validation_accuracy:.4f}"
    return line
