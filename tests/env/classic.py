"""The classic environment as the tests use it: the real one, and builders of others beside it.

Where it isn't made the tests skip with the command that makes it; with HPCNN_REQUIRE_CLASSIC=1, as in .ci/run, they
fail.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.env.conftest import CLONE

PINS = (CLONE / "env/constraints-classic.txt").read_text().splitlines()


def in_classic(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "env/with.sh", "lasagne", *command], cwd=CLONE, capture_output=True, text=True, timeout=300
    )


def require_classic() -> Path:
    """The folder of the environment."""
    found = in_classic("printenv", "VIRTUAL_ENV")
    if found.returncode == 0:
        return Path(found.stdout.strip())
    if os.environ.get("HPCNN_REQUIRE_CLASSIC") == "1":
        pytest.fail(f"HPCNN_REQUIRE_CLASSIC=1, but {found.stderr}", pytrace=False)
    pytest.skip(found.stderr)


def pinned(*names: str) -> str:
    """The lines of the list that pin these."""
    lines = [line for line in PINS if line.partition("==")[0] in names]
    assert len(lines) == len(names)
    return "".join(f"{line}\n" for line in lines)


class Builder:
    """env/create.sh with a place and pins of its own; pip keeps the settings that it has here."""

    def __init__(self, folder: Path, pins: str, recipe: str = "classic") -> None:
        self.recipe = recipe
        self.root = folder / "root"
        self.pins = folder / "pins.txt"
        self.pins.write_text(pins)
        others = {name: value for name, value in os.environ.items() if not name.startswith(("HPCNN_", "VIRTUAL_ENV"))}
        self.variables = others | {
            "HPCNN_ENV_ROOT": str(self.root),
            "HPCNN_CONSTRAINTS": str(self.pins),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        """In a process group of its own."""
        return subprocess.Popen(
            ["bash", "env/create.sh", self.recipe, *words],
            cwd=CLONE,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def make(self, *words: str) -> tuple[int, str, str]:
        """(status, standard output, standard error)"""
        process = self.start(*words)
        out, err = process.communicate(timeout=600)
        return process.returncode, out, err

    def stop_in_the_compiler(self, process: subprocess.Popen[str], how: signal.Signals) -> tuple[str, str]:
        """End all of a builder's processes once the compiler is at Caffe; what it wrote."""
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "compiling" not in lines[-1]:  # an environment that was left half-made is gone by then
            if not (line := process.stdout.readline()):
                pytest.fail(f"ended before it compiled: {process.communicate()}")
            lines.append(line)
        while not list(self.root.glob("envs/*/compiled/caffe/build/include/caffe/proto/caffe.pb.cc")):
            if process.poll() is not None:
                pytest.fail(f"ended before it compiled: {process.communicate()}")
            time.sleep(0.1)
        os.killpg(process.pid, how)
        out, err = process.communicate(timeout=60)
        return "".join(lines) + out, err

    def environments(self) -> list[Path]:
        """Folders of environments, complete or not."""
        return [path for path in self.root.glob("envs/*") if path.is_dir()]

    def caffe_folder(self, clone: Path = CLONE) -> Path:
        """Where the Caffe of these pins is kept, or would be."""
        script = "set -euo pipefail; . env/common.sh; . env/classic.sh; locate_environment classic; caffe_folder"
        found = subprocess.run(
            ["bash", "-c", script],
            cwd=clone,
            env=self.variables,
            capture_output=True,
            text=True,
            check=True,
        )
        return Path(found.stdout.strip())
