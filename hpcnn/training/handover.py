"""What a caller in the same process hands to a run beside its settings, and what it gets back.

The command hands over nothing: names and files in its settings say all. A script may hold an architecture, arrays or a
trained state that no file names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcnn.network.architecture import Architecture
from hpcnn.records.run_folder import LossRow
from hpcnn.training.arrays import Arrays
from hpcnn.training.checkpoint import Checkpoint
from hpcnn.training.evaluate import Evaluation
from hpcnn.wrappers.contract import SegmentModel


@dataclass(frozen=True, kw_only=True)
class Given:
    """Each takes the place of what the setting of that name (`checkpoint`: resume) would be looked up by.

    `begin`: when the run began, in seconds of the monotonic clock (default: this process's start).
    `command`: what started it, for run.json (default: the command hpcnn).
    """

    architecture: Architecture | None = None
    checkpoint: Checkpoint | None = None
    train: Arrays | None = None
    test: Arrays | None = None
    begin: float | None = None
    command: Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A run that completed, the same on all ranks. `folder`: of its results. `history`: a row a step, as in loss.csv.

    `wall_seconds`: of rank 0. `test`: of the test rows, where there are some. `checkpoint`, `model`: the state that it
    ended in, and the network that computes with it, None where it is cut.
    """

    folder: Path
    wall_seconds: float
    history: tuple[LossRow, ...] = field(repr=False)
    test: Evaluation | None
    checkpoint: Checkpoint = field(repr=False)
    model: SegmentModel | None = field(repr=False)
