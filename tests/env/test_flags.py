"""The flags of env/create.sh: in any order, refused in one line, and what env/with.sh then has to be told."""

from __future__ import annotations

import pytest

KNOWN = "known: --mpi pypi|site, --wheelhouse DIR, --download DIR, --help"


@pytest.mark.parametrize("words", [("--help",), ("modern", "-h"), ("--mpi", "site", "--help")])
def test_help_says_flags_recipes_and_variables_and_makes_nothing(machine, words) -> None:
    status, out, err = machine.run("create.sh", *words)
    assert (status, err) == (0, "")
    for word in (
        "--mpi",
        "--wheelhouse",
        "--download",
        "modern, modern-cuda",
        "HPCNN_ENV_ROOT",
        "PIP_CACHE_DIR",
        "TMPDIR",
    ):
        assert word in out
    assert not machine.root.exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--mpi",), f"--mpi lacks what follows it; {KNOWN}"),
        (("--wheelhouse=",), f"--wheelhouse lacks what follows it; {KNOWN}"),
        (("modern", "--wheels", "x"), f"unknown flag '--wheels'; {KNOWN}"),
        (("-x",), f"unknown flag '-x'; {KNOWN}"),
        (("modern", "classic"), "one recipe at a time, not both 'modern' and 'classic'"),
        (
            ("--download", "a", "--wheelhouse", "b"),
            "--download fills a folder and --wheelhouse uses one: give one of them",
        ),
    ],
)
def test_what_is_not_understood_is_one_line(machine, words, line: str) -> None:
    assert machine.refusal("create.sh", *words) == f"env: {line}"
    assert machine.run("create.sh", *words)[0] == 2


def test_what_only_this_call_was_told_is_said_as_an_export(machine) -> None:
    machine.add_python()
    _, out, _ = machine.run("create.sh", "--mpi", "pypi", "modern-cuda")
    assert out.splitlines()[-1].endswith(": export HPCNN_RECIPE=modern-cuda")
    assert "isn't made yet" in machine.refusal("with.sh", "torch", "true")
    assert machine.run("with.sh", "torch", "true", HPCNN_RECIPE="modern-cuda")[0] == 0

    _, out, _ = machine.run("create.sh", HPCNN_RECIPE="modern-cuda")
    assert len(out.splitlines()) == 1  # env/with.sh finds it as it is
    _, out, _ = machine.run("create.sh", "--mpi=pypi", "modern-cuda", HPCNN_MPI="site")
    assert out.splitlines()[-1].endswith(": export HPCNN_RECIPE=modern-cuda HPCNN_MPI=pypi")
    assert len(machine.environments()) == 1
