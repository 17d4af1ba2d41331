"""env/hpcnn.def as text: building it needs Apptainer, which Debian doesn't package."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

CLONE = Path(__file__).parents[2]


def sections() -> dict[str, str]:
    parts = re.split(r"^%(\w+)\n", (CLONE / "env/hpcnn.def").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_what_it_copies_is_in_the_clone_and_where_its_scripts_look() -> None:
    copied = dict(line.split() for line in sections()["files"].splitlines() if line.strip())
    assert set(copied) == {"env", "hpcnn"}
    for source, target in copied.items():
        assert (CLONE / source).is_dir()
        assert target == f"/opt/hpcnn/{source}"
    for name in ("post", "runscript"):
        for script in re.findall(r"/opt/hpcnn/(env/\S+\.sh)", sections()[name]):
            assert (CLONE / script).exists()


def test_its_scripts_are_shell() -> None:
    for name in ("post", "environment", "runscript"):
        subprocess.run(["sh", "-n"], input=sections()[name], text=True, check=True)
