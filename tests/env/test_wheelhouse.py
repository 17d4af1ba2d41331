"""A folder of wheels in place of an index: filled on one machine, all that another one needs."""

from __future__ import annotations

import shlex

import pytest

from tests.env.conftest import CLONE, SmallMachine

NO_INTERNET = {
    "PIP_NO_INDEX": "0",
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_RETRIES": "1",
    "PIP_FIND_LINKS": "",
}


def fill(machine: SmallMachine, words: list[str]) -> tuple[int, str, str]:
    """Carry out `PYTHON=… bash env/create.sh …` as the script has told us to."""
    variable, shell, script, *flags = words
    assert variable.startswith("PYTHON=python3.")
    assert [shell, script] == ["bash", "env/create.sh"]
    return machine.run("create.sh", *flags)


def test_what_one_machine_downloads_makes_the_environment_of_another(machine) -> None:
    machine.add_python()
    house = machine.folder / "wheel house"
    status, out, err = machine.run("create.sh", "--download", str(house))
    assert (status, err) == (0, "")
    assert sorted(path.name for path in house.iterdir()) == ["download.log", "tinypin-1.0-py3-none-any.whl"]
    assert out.splitlines()[-1].endswith(f"bash env/create.sh modern --mpi pypi --wheelhouse {house}")
    assert not machine.root.exists()
    assert machine.run("create.sh", f"--download={house}")[0] == 0  # again

    status, _, err = machine.run("create.sh", "--wheelhouse", str(house), **NO_INTERNET)
    assert (status, err) == (0, "")
    assert machine.run("with.sh", "torch", "python", "-c", "import tinypin")[0] == 0


@pytest.mark.parametrize("made", [False, True], ids=["no folder", "an empty folder"])
def test_what_a_wheelhouse_lacks_is_named_with_the_command_that_brings_it(machine, made: bool) -> None:
    """Though the machine's own pip would know where to find it."""
    machine.add_python()
    house = machine.folder / "house"
    if made:
        house.mkdir()
    line = machine.refusal("create.sh", "--wheelhouse", str(house))
    assert (f"{house} has no tinypin==1.0 for Python 3." in line) == made
    assert (f"no folder {house};" in line) != made
    assert machine.environments() == []

    assert fill(machine, shlex.split(line.rpartition("internet: ")[2]))[0] == 0
    assert machine.run("create.sh", "--wheelhouse", str(house), **NO_INTERNET)[0] == 0


def test_a_download_without_internet_is_one_line_and_touches_no_environment(machine) -> None:
    machine.add_python()
    assert machine.run("create.sh")[0] == 0
    line = machine.refusal("create.sh", "--download", str(machine.folder / "house"), **NO_INTERNET)
    assert "the package index can't be reached" in line
    assert machine.run("with.sh", "torch", "python", "-c", "import tinypin")[0] == 0


def test_a_download_needs_no_mpi_of_the_site(machine) -> None:
    machine.add_python()
    line = machine.refusal("create.sh", "--mpi", "site", "--download", str(machine.folder / "house"))
    first = (CLONE / "env/mpi4py-build.txt").read_text().splitlines()[1]
    assert first in line  # which this machine's small index doesn't have
