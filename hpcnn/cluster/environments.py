"""Starting again in the environment that serves a backend: env/with.sh of this clone, before MPI has started.

A launcher starts a program in one environment, and Theano's NumPy and TensorFlow's exclude each other; so a process
whose backend is elsewhere becomes one of that environment, in place, and keeps its rank.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import hpcnn
from hpcnn.errors import LaunchError, NotInstalledError

MARK = "HPCNN_STARTED_AGAIN"
"""Set in a process that was started again, so that it never is twice."""
SCRIPT = Path(hpcnn.__file__).resolve().parents[1] / "env" / "with.sh"


def start_again(error: NotInstalledError, arguments: Sequence[str]) -> NoReturn:
    """Become `hpcnn` with the same arguments where the backend of `error` is.

    Raises `error` in a process that did so before, LaunchError where this clone or that environment is not there."""
    if MARK in os.environ:
        raise error
    if obstacle := environment_obstacle(error.word):
        here = "" if SCRIPT.exists() else f"; {error}"
        raise LaunchError(f"--auto-env: {obstacle}{here}")
    os.execvpe("bash", [*in_environment(error.word), "hpcnn", *arguments], {**os.environ, MARK: error.word})


def in_environment(word: str) -> list[str]:
    """The beginning of a command in the environment of env/with.sh's `word`."""
    return ["bash", str(SCRIPT), word]


@functools.cache
def environment_obstacle(word: str) -> str:
    """Why no command runs there, as env/with.sh says it, or "". Asked once a process."""
    if not SCRIPT.exists():
        return f"no {SCRIPT}: hpcnn is not run from its clone"
    command = [*in_environment(word), "true"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True)
    except OSError as failure:
        return f"cannot run {' '.join(command)}: {failure.strerror}"
    return tried.stderr.strip().removeprefix("env: ") if tried.returncode else ""
