"""A command on a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence

from tests.support.mpi import REPOSITORY, SETTINGS, end_session

COLUMNS = 110


def on_terminal(
    command: Sequence[str], *, stdout: bool = False, timeout: float = 90, until: Callable[[str], bool] | None = None
) -> tuple[int, str]:
    """Status, and what a command's standard error (and output, on wish) put onto a terminal of 110 columns.

    `until` ends the command, with status -1, as soon as what is shown is enough."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 30, COLUMNS, 0, 0))
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env={**os.environ, **SETTINGS, "PYTHONPATH": str(REPOSITORY)}, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=inner if stdout else subprocess.DEVNULL, stderr=inner, text=True,
    )  # fmt: skip
    os.close(inner)
    shown, deadline = b"", time.monotonic() + timeout
    try:
        while time.monotonic() < deadline:
            try:
                part = os.read(outer, 4096)
            except OSError:  # EIO: the last process that had the terminal has ended
                break
            if not part:
                break
            shown += part
            if until is not None and until(shown.decode()):
                return -1, shown.decode()
        return process.wait(timeout=max(1.0, deadline - time.monotonic())), shown.decode()
    finally:
        os.close(outer)
        end_session(process)
