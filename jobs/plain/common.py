"""What the plain scripts share: flags, the rows of a CSV, the allocator, the clock, the report. No framework, no hpcnn.

The CSV has a header and its label in the last column. --replay FILE.npz follows another program's training exactly:
parameter_I (initial values of the I-th kernel or bias, in PyTorch's layout), rows_S (data rows, from 0, of the global
batch of step S) and mask_S_D (what the output of the D-th dropout's input is multiplied by in step S).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Array = Any
DEFAULT_NETWORK = "cnn2d_3layer_fullconnected_3layer"


def flags(framework: str, networks: Iterable[str], tunings: str, tuning: str, threads: int) -> argparse.ArgumentParser:
    """`tunings`: the parts of --tuned, joined by "+"; `tuning`: in words; `threads`: the default."""
    parser = argparse.ArgumentParser(description=f"Train a convolutional network on a CSV's rows with {framework}.")
    parser.add_argument("--network", choices=tuple(networks), default=DEFAULT_NETWORK)
    parser.add_argument("--train", required=True, metavar="CSV")
    parser.add_argument("--test", metavar="CSV")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=50, help="rows of one update, over all ranks")
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--momentum", type=float, default=0.0, help="of sgd")
    parser.add_argument("--nesterov", action="store_true")
    parser.add_argument("--threads", type=int, default=threads, help="threads a process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--tuned",
        nargs="?",
        const=tunings,
        default="",
        choices=dict.fromkeys((*tunings.split("+"), tunings)),
        help=tuning,
    )
    parser.add_argument("--replay", metavar="NPZ", help="take weights, batches and masks from a file")
    parser.add_argument("--out", metavar="NPZ", help="where --replay writes losses, gradient norms and weights")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where rank 0 writes settings and seconds per epoch")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options; the allocator is tuned here, before much has been allocated, where that is asked for."""
    options = parser.parse_args()
    if bool(options.replay) != bool(options.out):
        parser.error("--replay and --out belong together")
    if "allocator" in options.tuned:
        tune_allocator()
    return options


def threads_asked(default: int) -> int:
    """What --threads says, for libraries that read it as they are imported."""
    early = argparse.ArgumentParser(add_help=False)
    early.add_argument("--threads", type=int, default=default)
    return early.parse_known_args()[0].threads


def tune_allocator() -> None:
    """Keep glibc from returning large activations to the kernel after each step (values of <malloc.h>)."""
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, value in ((-4, 0), (-1, 2**31 - 1), (-2, 256 << 20)):  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD
        mallopt(parameter, value)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def read_rows(path: str) -> tuple[Array, Array]:
    """All rows of a CSV: float32[n, 784] pixels from 0 to 1, int64[n] labels."""
    table = pd.read_csv(path).to_numpy()
    return table[:, :-1].astype(np.float32) * np.float32(1 / 255), table[:, -1].astype(np.int64)


class Epochs:
    """The clock of timed epochs; an epoch is all its steps: batches, forward, backward, sum over ranks, update."""

    def __init__(self, rows: int, say: Callable[[str], object] = print) -> None:
        self.rows, self.say = rows, say
        self.found: list[dict[str, Any]] = []

    def start(self) -> None:
        self.began = time.perf_counter()

    def end(self, loss: float) -> None:
        seconds, epoch = time.perf_counter() - self.began, len(self.found) + 1
        rate = self.rows / seconds
        self.found.append({"epoch": epoch, "seconds": seconds, "rows_per_second": rate, "loss": loss})
        self.say(f"epoch {epoch}: loss {loss:.4f}, {rate:.0f} rows/s")

    def report(self, options: argparse.Namespace, accuracy: float | None, **process: Any) -> None:
        """The last line, and the file that --json names; `process`: versions, ranks and threads."""
        if accuracy is not None:
            self.say(f"test accuracy {accuracy:.2%}")
        if options.json:
            found = {"rows": self.rows, "epochs": self.found, "test_accuracy": accuracy, "settings": vars(options)}
            document = {**process, "affinity": sorted(os.sched_getaffinity(0)), **found}
            options.json.write_text(json.dumps(document, indent=2, default=str) + "\n")


class Recording:
    """What --replay names, and the file that is written in return."""

    def __init__(self, path: str) -> None:
        with np.load(path) as recorded:
            self.arrays = dict(recorded)
        self.parameters = self._numbered("parameter_")
        self.steps = [(rows, self._numbered(f"mask_{step}_")) for step, rows in enumerate(self._numbered("rows_"))]

    def _numbered(self, prefix: str) -> list[Array]:
        count = sum(name.startswith(prefix) for name in self.arrays)
        return [self.arrays[f"{prefix}{place}"] for place in range(count)]


def write_replayed(path: str, steps: Sequence[tuple[float, float]], parameters: Iterable[Array]) -> None:
    """Loss and gradient norm of each step, and the parameters at the end, in PyTorch's layout."""
    weights = {f"parameter_{place}": value for place, value in enumerate(parameters)}
    np.savez(path, loss=[loss for loss, _ in steps], gradient_norm=[norm for _, norm in steps], **weights)


def from_torch_layout(parameters: Iterable[Array]) -> list[Array]:
    """Out x in x height x width and out x in, flattened by channel, as TensorFlow and Keras have them: the other way.

    Keras flattens channels last whatever the memory format.
    """
    found, channels = [], 0
    for value in parameters:
        if value.ndim == 4:
            channels = len(value)
            value = value.transpose(2, 3, 1, 0)
        elif value.ndim == 2:  # the first dense layer has a kernel as large as the image that was flattened
            side = math.isqrt(value.shape[1] // channels) if channels else 1
            value = value.reshape(len(value), -1, side, side).transpose(2, 3, 1, 0).reshape(-1, len(value))
            channels = 0
        found.append(value)
    return found


def to_torch_layout(parameters: Iterable[Array]) -> list[Array]:
    """The way back."""
    found, channels = [], 0
    for value in parameters:
        outputs = value.shape[-1]
        if value.ndim == 4:
            channels = outputs
            value = value.transpose(3, 2, 0, 1)
        elif value.ndim == 2:
            side = math.isqrt(len(value) // channels) if channels else 1
            value = value.reshape(side, side, -1, outputs).transpose(3, 2, 0, 1).reshape(outputs, -1)
            channels = 0
        found.append(value)
    return found
