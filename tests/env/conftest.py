"""The scripts of env/ run on a machine in small: a PATH of chosen programs, an empty home, a store of one tiny wheel.

pip is the real one; only the list of pins is another (HPCNN_CONSTRAINTS), so that an environment takes seconds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[2]
TOOLS = (
    "awk bash cat cut date df dirname du env flock grep head id ls mkdir mktemp mv printenv rm sh sha256sum sleep tail "
    "tr true uname"
)
ONE_PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")


def write_wheel(folder: Path, name: str, version: str) -> None:
    folder.mkdir(exist_ok=True)
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")


class SmallMachine:
    """`variables` is the whole environment of a script; programs are added to and removed from `bin`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS.split():
            if found := shutil.which(tool):
                (self.bin / tool).symlink_to(found)
        write_wheel(folder / "wheels", "tinypin", "1.0")
        self.pins = folder / "pins.txt"
        self.pins.write_text("tinypin==1.0\n")
        self.root = folder / "root"
        self.variables = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "HPCNN_ENV_ROOT": str(self.root),
            "HPCNN_CONSTRAINTS": str(self.pins),
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(folder / "wheels"),
        }

    def add_python(self, name: str = "python3") -> None:
        (self.bin / name).symlink_to(ONE_PYTHON)

    def add_script(self, name: str, text: str) -> Path:
        program = self.bin / name
        program.unlink(missing_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return program

    def add_pretending_python(self, name: str, pretence: str) -> Path:
        """A Python that runs the line `pretence` before the `-c` program that it is asked to run."""
        return self.add_script(name, f"""exec {ONE_PYTHON} -c 'import sys; {pretence}; exec(sys.argv[2])' "$@" """)

    def popen(self, script: str, *words: str, **variables: str) -> subprocess.Popen[str]:
        """In a process group of its own."""
        return subprocess.Popen(
            ["bash", str(CLONE / "env" / script), *words],
            env=self.variables | variables,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, script: str, *words: str, **variables: str) -> tuple[int, str, str]:
        """(status, standard output, standard error)"""
        process = self.popen(script, *words, **variables)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def refusal(self, script: str, *words: str, **variables: str) -> str:
        """The one line on standard error with which the script must fail."""
        status, _, err = self.run(script, *words, **variables)
        assert status != 0
        (line,) = err.splitlines()
        assert line.startswith("env: ")
        return line

    def environments(self) -> list[Path]:
        """Folders of environments, complete or not."""
        return [path for path in self.root.glob("envs/*") if path.is_dir()]


@pytest.fixture
def machine(tmp_path: Path) -> SmallMachine:
    """Without any Python; `add_python` brings it."""
    return SmallMachine(tmp_path)


@pytest.fixture(scope="session")
def small_machine_type() -> type[SmallMachine]:
    """For a test module that shares one machine."""
    return SmallMachine
