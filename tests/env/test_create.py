"""env/create.sh: made once, used again, never used half-made; a failure is one line and leaves nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.env.conftest import write_wheel

CLONE = Path(__file__).parents[2]
NO_MORE = "isn't made yet"


def start_and_hang(machine) -> tuple[subprocess.Popen[str], socket.socket]:
    """create.sh in the midst of its pip: an index that takes the connection and never answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)
    index = f"http://127.0.0.1:{listener.getsockname()[1]}/simple"
    process = machine.popen("create.sh", PIP_NO_INDEX="0", PIP_INDEX_URL=index, PIP_FIND_LINKS="", PIP_RETRIES="0")
    connection, _ = listener.accept()
    listener.close()
    return process, connection


def test_an_environment_is_made_once_and_then_used(machine) -> None:
    machine.add_python()
    status, out, err = machine.run("create.sh", "modern")
    assert (status, err) == (0, "")
    assert "making" in out
    (made,) = machine.environments()
    before = made.stat().st_mtime_ns

    status, out, err = machine.run("create.sh")
    assert (status, err) == (0, "")
    assert out.startswith(f"env: using {made} ")
    assert len(out.splitlines()) == 1
    assert machine.environments() == [made]
    assert made.stat().st_mtime_ns == before


def test_another_pin_is_another_environment(machine) -> None:
    machine.add_python()
    assert machine.run("create.sh")[0] == 0
    write_wheel(machine.folder / "wheels", "tinypin", "1.1")
    machine.pins.write_text("tinypin==1.1\n")
    assert NO_MORE in machine.refusal("with.sh", "torch", "true")


def test_a_comment_on_a_pin_is_no_other_environment(machine) -> None:
    machine.add_python()
    assert machine.run("create.sh")[0] == 0
    machine.pins.write_text("# a word more\n\ntinypin==1.0  # and why\n")
    assert machine.run("with.sh", "torch", "true")[0] == 0


def test_a_note_on_the_pins_is_said(machine) -> None:
    machine.add_python()
    machine.pins.write_text("# NOTE: it was never run.\ntinypin==1.0\n")
    for _ in range(2):
        assert machine.run("create.sh")[1].splitlines()[-1] == "env: it was never run."


def test_a_build_that_was_killed_is_not_used_and_is_made_anew(machine) -> None:
    machine.add_python()
    process, connection = start_and_hang(machine)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    connection.close()
    assert len(machine.environments()) == 1  # nobody was left to remove it
    assert NO_MORE in machine.refusal("with.sh", "torch", "true")

    status, out, _ = machine.run("create.sh")
    assert status == 0
    assert "making" in out
    assert machine.run("with.sh", "torch", "python", "-c", "import tinypin")[0] == 0


def test_a_build_that_is_interrupted_leaves_nothing(machine) -> None:
    machine.add_python()
    process, connection = start_and_hang(machine)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    connection.close()
    assert process.returncode == 130
    assert len(err.splitlines()) == 1
    assert machine.environments() == []


def test_two_builders_of_one_environment_build_it_once(machine) -> None:
    machine.add_python()
    builders = [machine.popen("create.sh"), machine.popen("create.sh")]
    outputs = [builder.communicate(timeout=120)[0] for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0]
    assert sum("making" in output and "made in" in output for output in outputs) == 1
    assert len(machine.environments()) == 1


def test_a_pin_that_pip_cannot_serve_is_one_line_with_the_log(machine) -> None:
    machine.add_python()
    machine.pins.write_text("tinypin==2.0\n")
    line = machine.refusal("create.sh")
    assert "Could not find a version that satisfies the requirement tinypin==2.0" in line
    log = line.rpartition("the whole log: ")[2]
    with open(log) as lines:
        assert "tinypin" in lines.read()
    assert machine.environments() == []


def test_an_index_out_of_reach_is_said(machine) -> None:
    machine.add_python()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        index = f"http://127.0.0.1:{listener.getsockname()[1]}/simple"
    variables = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": index, "PIP_FIND_LINKS": "", "PIP_RETRIES": "1"}
    assert "the package index can't be reached" in machine.refusal("create.sh", **variables)


def test_a_package_without_a_wheel_is_refused(machine) -> None:
    machine.add_python()
    (machine.folder / "wheels/tinypin-1.0-py3-none-any.whl").unlink()
    (machine.folder / "wheels/tinypin-1.0.tar.gz").write_bytes(b"")  # a source release
    assert "Could not find a version" in machine.refusal("create.sh")


def test_a_folder_that_cannot_be_written_is_one_line(machine) -> None:
    machine.add_python()
    machine.root.write_text("a file where the folder should be")
    assert "set HPCNN_ENV_ROOT" in machine.refusal("create.sh")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_one_line_and_leaves_nothing(machine) -> None:
    machine.add_python()
    machine.root.mkdir()
    script = 'mount -t tmpfs -o size=6m tmpfs "$0"; bash "$1" || echo "status $?"; ls "$0/envs"'
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-euc", script, machine.root, CLONE / "env/create.sh"],
        env=machine.variables | {"PATH": os.environ["PATH"], "PYTHON": str(machine.bin / "python3")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    (line,) = done.stderr.splitlines()
    assert "the disk is full" in line
    assert "status 1" in done.stdout
    left = done.stdout.partition("status 1\n")[2].split()
    assert sorted(name.rpartition(".")[2] for name in left) == ["lock", "log"]
