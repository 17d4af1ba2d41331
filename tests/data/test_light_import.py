"""The data room is imported by everything: it must not bring in pandas, MPI or a framework."""

from __future__ import annotations

import sys

from tests.support.mpi import run_session

SCRIPT = """
import sys
import hpcnn.data.dataset, hpcnn.data.order, hpcnn.data.normalise
print(sorted({"pandas", "mpi4py", "torch", "tensorflow", "keras", "h5py"} & set(sys.modules)))
"""


def test_importing_the_data_room_imports_neither_pandas_nor_mpi_nor_a_framework() -> None:
    run = run_session([sys.executable, "-c", SCRIPT])
    assert (run.returncode, run.stdout) == (0, "[]\n"), run.stderr
