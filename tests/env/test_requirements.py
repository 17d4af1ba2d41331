"""What a machine lacks is said in one line, before anything is made."""

from __future__ import annotations

import pytest


def nothing_made(machine) -> bool:
    return not machine.root.exists()


def test_no_python_at_all(machine) -> None:
    line = machine.refusal("create.sh")
    assert "no Python runs under the name python3.11 python3.12 python3" in line
    assert "apt-get install python3 python3-venv" in line
    assert nothing_made(machine)


def test_a_python_that_is_too_old_is_named_with_its_version(machine) -> None:
    machine.add_pretending_python("python3", 'sys.version_info = (3, 9, 2, "final", 0)')
    assert "python3 is Python 3.9, hpcnn needs 3.11 or newer" in machine.refusal("create.sh")
    assert nothing_made(machine)


def test_a_python_without_ensurepip_names_the_package(machine) -> None:
    machine.add_pretending_python("python3.11", 'sys.modules["ensurepip"] = None')
    line = machine.refusal("create.sh")
    assert "python3.11 (Python 3." in line
    assert "has no ensurepip" in line
    assert "python3-venv" in line
    assert nothing_made(machine)


def test_the_first_python_that_will_do_is_taken(machine) -> None:
    machine.add_script("python3.11", "exit 127")  # a version manager's stub of a version that isn't chosen
    machine.add_pretending_python("python3.12", 'sys.modules["ensurepip"] = None')
    machine.add_python("python3")
    status, out, err = machine.run("create.sh")
    assert (status, err) == (0, "")
    assert f"({machine.bin / 'python3'})" in out


def test_a_python_asked_for_by_name_is_not_replaced_by_another(machine) -> None:
    machine.add_python("python3")
    line = machine.refusal("create.sh", PYTHON="/nowhere/python3.11")
    assert "no Python runs under the name /nowhere/python3.11" in line


def test_the_sites_mpi_without_mpirun_says_to_load_it(machine) -> None:
    machine.add_python()
    line = machine.refusal("create.sh", "--mpi", "site")
    assert "there is no mpirun: load the site's MPI" in line
    assert "apt-get install gcc libopenmpi-dev openmpi-bin" in line


def test_the_sites_mpi_without_mpicc_says_to_load_it(machine) -> None:
    machine.add_python()
    machine.add_script("mpirun", "echo mpirun 9.9")
    line = machine.refusal("create.sh", "--mpi", "site")
    assert "there is no mpicc: load the site's MPI" in line
    assert "apt-get install gcc libopenmpi-dev openmpi-bin" in line
    assert nothing_made(machine)


def test_a_missing_compiler_behind_mpicc_is_one_line(machine) -> None:
    machine.add_python()
    machine.add_script("mpirun", "echo mpirun 9.9")
    mpicc = machine.add_script("mpicc", "echo gcc: not found >&2; exit 1")
    line = machine.refusal("create.sh", "--mpi", "site")
    assert f"{mpicc} compiles no program: install a C compiler" in line
    assert nothing_made(machine)


@pytest.mark.parametrize(
    ("mpirun", "library", "agree"),
    [
        ("mpirun (Open MPI) 4.1.4", "MPICH Version: 4.0.2", False),
        ("HYDRA build details: 4.0.2", "Open MPI v4.1.4", False),
        ("mpirun.openmpi (OpenRTE) 4.1.4", "Open MPI v4.1.4", True),
        ("Intel(R) MPI Library, Version 2021.13", "Intel(R) MPI Library 2021.13", True),
    ],
)
def test_mpicc_and_mpirun_of_different_mpis_are_refused(machine, mpirun: str, library: str, agree: bool) -> None:
    machine.add_python()
    machine.add_script("mpirun", f"echo '{mpirun}'")
    linked = f"printf '#!/bin/sh\\necho \"{library}\"\\n' >$3; /bin/chmod +x $3"  # mpicc SOURCE -o PROGRAM
    machine.add_script("mpicc", linked)
    line = machine.refusal("create.sh", "--mpi", "site")
    assert ("is of another MPI" in line) != agree
    if not agree:
        assert f"{machine.bin / 'mpicc'} is of another MPI ({library}) than {machine.bin / 'mpirun'}" in line
        assert nothing_made(machine)


@pytest.mark.parametrize("script", [("create.sh",), ("with.sh", "torch", "true")])
def test_an_unknown_mpi_lists_the_known(machine, script) -> None:
    machine.add_python()
    line = machine.refusal(*script, HPCNN_MPI="mvapich")
    assert line.endswith("MPI 'mvapich' is unknown (--mpi, HPCNN_MPI); known: pypi (the default), site")


def test_an_unknown_recipe_lists_the_known(machine) -> None:
    machine.add_python()
    del machine.variables["HPCNN_CONSTRAINTS"]
    for words in ({"HPCNN_RECIPE": "antique"}, {}):
        line = machine.refusal("create.sh", *(() if words else ("antique",)), **words)
        assert "constraints-antique.txt; recipes: modern, modern-cuda" in line
