"""One cell of a study, run to its end: a process that ends with this one, however this one ends; what became of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hpcnn.studies.cells import Cell, run_state

OUTPUT = "output.log"
"""What the last run of a cell said, its launcher too."""
SECONDS_BETWEEN_LOOKS = 1.0
GRACE_SECONDS = 20.0
_PR_SET_PDEATHSIG = 1
_MARK = "hpcnn: "
"""Of a line by which `hpcnn train` refuses or gives up."""


def run_cell(
    command: Sequence[str], environ: Mapping[str, str], folder: Path, minutes: float, look: Callable[[], None]
) -> str:
    """Run a cell's command, its words into FOLDER/output.log, calling `look` once a second. Returns "", or why it was
    ended. Whatever is raised here ends the process first."""
    parent, deadline = os.getpid(), time.monotonic() + 60 * minutes
    with open(folder / OUTPUT, "wb") as output:
        process = subprocess.Popen(
            command, env=dict(environ), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            preexec_fn=lambda: _end_with(parent),
        )  # fmt: skip
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(SECONDS_BETWEEN_LOOKS)
                    return ""
                look()
                if time.monotonic() > deadline:
                    _end(process)
                    return f"ended after {minutes:g} minutes: raise minutes in the study, or make its runs shorter"
        except BaseException:
            _end(process)
            raise


def _end_with(parent: int) -> None:
    """In the new process: ask the kernel for SIGTERM when the parent is gone, on which mpirun ends its ranks."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)  # it went before the kernel was asked


def _end(process: subprocess.Popen[bytes]) -> None:
    for stop in (process.terminate, process.kill):
        stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
            return


def runs_in(folder: Path) -> set[Path]:
    return {record.parent for record in folder.glob("*/run.json")}


def became(cell: Cell, study_folder: Path, folder: Path, before: set[Path], words: str) -> Cell:
    """The cell after its process. `before`: runs that were there already; `words`: why the process was ended.

    A run that left no folder of its own was refused by `hpcnn train`, where that said why."""
    new = sorted(runs_in(folder) - before)
    said = last_words(folder / OUTPUT)
    if not new:
        refused = said.startswith(_MARK) and not words
        return replace(
            cell, state="refused" if refused else "failed", run=None,
            reason=words or said.removeprefix(_MARK) or f"it left nothing; see {folder / OUTPUT}",
        )  # fmt: skip
    state = run_state(new[-1])
    run = str(new[-1].relative_to(study_folder))
    if state.state == "completed":
        return replace(cell, state="done", reason="", run=run)
    reason = words or state.words or said.removeprefix(_MARK) or f"{state.state}; see {folder / OUTPUT}"
    return replace(cell, state="failed", reason=reason, run=run)


def last_words(path: Path) -> str:
    """The last line by which hpcnn spoke, else the last one that anybody did."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    ours = [line for line in lines if line.startswith(_MARK)]
    others = [line.strip() for line in lines if line.strip(" -*")]
    return (ours or others or [""])[-1][:500]
