"""Worlds of 1 to 4 ranks that carry out many commands each; started when first asked for, ended with the tests.

All tests of a process share them: a start of MPI and a framework on so many ranks takes longer than most commands.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.mpi import FLAGS, REPOSITORY, SETTINGS, end_session, mpirun_path

SECONDS = 300.0
"""Limit of one command; Theano compiles for minutes where nobody has before."""


@dataclass(frozen=True)
class Outcome:
    """One command: its largest status, rank 0's words, and (status, stdout, stderr) of every rank."""

    status: int
    stdout: str
    stderr: str
    ranks: tuple[tuple[int, str, str], ...]


class World:
    """`ranks` processes that hold MPI and a framework open between commands.

    `python`: what starts each, for a world in another environment."""

    def __init__(self, ranks: int, python: Sequence[str] = (sys.executable,)) -> None:
        self.size = ranks
        launcher = [] if ranks == 1 else [mpirun_path(), "-np", str(ranks), *FLAGS]
        path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the world
        self._process = subprocess.Popen(
            [*launcher, *python, "-m", "tests.training.world_driver"],
            cwd=REPOSITORY, env={**os.environ, **SETTINGS, "PYTHONPATH": path}, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip

    def hpcnn(self, *arguments: object) -> Outcome:
        """`hpcnn arguments...` on every rank; or what follows Python's -m: a module that has a main()."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(map(str, arguments))).encode() + b"\n")
        self._process.stdin.flush()
        ranks = tuple((int(status), out, err) for status, out, err in json.loads(self._line()))
        return Outcome(max(status for status, _, _ in ranks), ranks[0][1], ranks[0][2], ranks)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def train(self, *arguments: object) -> Outcome:
        """A training that has to succeed."""
        outcome = self.hpcnn("train", "--threads", 1, *arguments)
        assert outcome.status == 0, outcome.stderr
        return outcome

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        stream, line, deadline = self._process.stdout.fileno(), b"", time.monotonic() + SECONDS
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(stream, 1 << 16) if ready else b""
            if not part:
                self.close()
                self._errors.seek(0)
                raise RuntimeError(f"a world of {self.size} ranks ended or hangs: {self._errors.read().decode()}")
            line += part
        return line

    def end(self) -> None:
        """Ask the ranks to end."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            # An empty line ends the ranks; mpirun does not pass on that its input has ended.
            with contextlib.suppress(OSError):
                self._process.stdin.write(b"\n")
                self._process.stdin.close()

    def close(self) -> None:
        """Wait until they have ended, or end them."""
        self.end()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            end_session(self._process)


class Worlds:
    """A world by number of ranks."""

    def __init__(self) -> None:
        self._worlds: dict[int, World] = {}

    def of(self, ranks: int) -> World:
        if ranks not in self._worlds or not self._worlds[ranks].alive:
            self._worlds[ranks] = World(ranks)
        return self._worlds[ranks]

    def close(self) -> None:
        for world in self._worlds.values():
            world.end()
        for world in self._worlds.values():
            world.close()
        self._worlds.clear()


SHARED = Worlds()
atexit.register(SHARED.close)


def refusal(outcome: Outcome, folder: Path | None = None) -> str:
    """The one line that a refused command said; nothing may stand in `folder`, where one is given."""
    lines = outcome.stderr.splitlines()
    assert outcome.status not in (0, -1), outcome
    assert len(lines) == 1, outcome.stderr
    assert lines[0].startswith("hpcnn: "), outcome.stderr
    assert all(err == "" for _, _, err in outcome.ranks[1:])
    assert folder is None or not folder.exists() or not list(folder.iterdir())
    return lines[0].removeprefix("hpcnn: ")
