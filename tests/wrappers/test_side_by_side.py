"""All backends in one process, imported in either order: each computes rightly, and keeps its hands off the cores."""

from __future__ import annotations

import json
import sys

import pytest

from hpcnn.wrappers.registry import BACKENDS
from tests.support.mpi import run_session

INSTALLED = [name for name in BACKENDS if not BACKENDS[name].missing()]


@pytest.mark.parametrize("variable", [{}, {"OMP_NUM_THREADS": "1"}], ids=["", "OMP_NUM_THREADS"])
@pytest.mark.parametrize("order", [INSTALLED, INSTALLED[::-1]], ids=" ".join)
def test_all_of_them_compute_rightly_and_no_import_binds_the_process_to_fewer_cores(
    monkeypatch: pytest.MonkeyPatch, order: list[str], variable: dict[str, str]
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run = run_session([sys.executable, "-m", "tests.wrappers.side_by_side", *order], env=variable, timeout=180)
    assert run.returncode == 0, run.stderr
    before, after = json.loads(run.stdout)
    assert after == before
