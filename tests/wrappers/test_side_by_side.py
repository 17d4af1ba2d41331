"""All backends in one process, imported in either order: each computes rightly, and keeps its hands off the cores."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.mpi import run_session
from tests.wrappers.backends import INSTALLED


@pytest.mark.parametrize(
    ("order", "variable"),
    [
        pytest.param(INSTALLED, {}, id=" ".join(INSTALLED)),
        pytest.param(INSTALLED[::-1], {"OMP_NUM_THREADS": "1"}, id=" ".join((*INSTALLED[::-1], "OMP_NUM_THREADS"))),
    ],
)
def test_all_of_them_compute_rightly_and_no_import_binds_the_process_to_fewer_cores(
    monkeypatch: pytest.MonkeyPatch, order: list[str], variable: dict[str, str]
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run = run_session([sys.executable, "-m", "tests.wrappers.side_by_side", *order], env=variable, timeout=180)
    assert run.returncode == 0, run.stderr
    before, after = json.loads(run.stdout)
    assert after == before
