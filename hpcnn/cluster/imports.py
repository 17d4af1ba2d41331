"""A backend loaded in a process of its own, as a training loads it: does it load, and which cores does that leave?

OpenMP libraries may bind the process that loads them (OMP_PROC_BIND=true, KMP_AFFINITY), and all that it starts later,
to a core or two; a training would then compute with all its threads there. The process is begun before MPI, which some
networks want no fork after, and runs while other things are looked at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from hpcnn.cluster.facts import Imported

SECONDS = 120
"""A first import from a busy file system takes long."""

_PROGRAM = """
import json, os, sys
before = sorted(os.sched_getaffinity(0))
from hpcnn.training.process import set_threads
from hpcnn.wrappers.registry import open_backend
name, options, threads = json.loads(sys.argv[1])
set_threads(threads, os.environ)
open_backend(name, options, threads)
print("\\n" + json.dumps([before, sorted(os.sched_getaffinity(0))]))
"""


class Loading:
    """A backend being loaded; `result` waits for it."""

    def __init__(self, name: str, options: Mapping[str, Any], threads: int) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps([name, dict(options), threads])],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="backslashreplace", env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip

    def result(self, seconds: float = SECONDS) -> Imported:
        """Ends the process after `seconds`."""
        try:
            out, err = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.end()
            return Imported(self._name, error=f"not loaded within {seconds:g} s")
        if self._process.returncode:
            lines = err.strip().splitlines()
            words = lines[-1] if lines else f"ended with status {self._process.returncode} and no word"
            return Imported(self._name, error=words.removeprefix("hpcnn.errors."))
        before, after = json.loads(out.splitlines()[-1])
        return Imported(self._name, tuple(before), tuple(after))

    def end(self) -> None:
        """Without its result, where that has not come."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
