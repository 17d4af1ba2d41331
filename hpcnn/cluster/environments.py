"""Starting again in the environment that serves a backend: env/with.sh of this clone, before MPI has started.

A launcher starts a program in one environment, and Theano's NumPy and TensorFlow's exclude each other; so a process
whose backend is elsewhere becomes one of that environment, in place, and keeps its rank.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import hpcnn
from hpcnn.errors import LaunchError, NotInstalledError

MARK = "HPCNN_STARTED_AGAIN"
"""Set in a process that was started again, so that it never is twice."""


def start_again(error: NotInstalledError, arguments: Sequence[str]) -> NoReturn:
    """Become `hpcnn` with the same arguments where the backend of `error` is.

    Raises `error` in a process that did so before, LaunchError where this clone or that environment is not there."""
    if MARK in os.environ:
        raise error
    script = Path(hpcnn.__file__).resolve().parents[1] / "env" / "with.sh"
    if not script.exists():
        raise LaunchError(f"--auto-env: no {script}: hpcnn is not run from its clone; {error}")
    command = ["bash", str(script), error.word]
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True)
    except OSError as failure:
        raise LaunchError(f"--auto-env cannot run {' '.join(command)}: {failure.strerror}") from None
    if tried.returncode:
        raise LaunchError(f"--auto-env: {tried.stderr.strip().removeprefix('env: ')}")
    os.execvpe("bash", [*command, "hpcnn", *arguments], {**os.environ, MARK: error.word})
