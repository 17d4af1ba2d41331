"""Which frameworks have a parallelism of their own, and why the others have none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hpcnn.backend_options import backend_label
from hpcnn.errors import BackendError
from hpcnn.wrappers.fused import FUSED, NONE_OF_ITS_OWN, check_fused
from hpcnn.wrappers.registry import BACKENDS

OVER = ("tensorflow", "torch", "jax", "theano")
LABELS = {*BACKENDS, *(backend_label("keras", {"backend": over}) for over in OVER)} - {"keras"}


def test_of_every_backend_it_is_known() -> None:
    assert {*FUSED, *NONE_OF_ITS_OWN} == LABELS
    assert not set(FUSED) & set(NONE_OF_ITS_OWN)


@pytest.mark.parametrize("label", FUSED)
def test_those_that_have_one_are_let_through(label: str) -> None:
    check_fused(label)


@pytest.mark.parametrize("label", NONE_OF_ITS_OWN)
def test_the_others_are_refused_with_the_reason_and_the_remedy(label: str) -> None:
    with pytest.raises(BackendError, match=rf"--reducer native is not for {label}: .*; choose --reducer mpi$"):
        check_fused(label)


def test_nothing_is_imported_to_refuse() -> None:
    code = "import sys; import hpcnn.wrappers.fused; print({'torch', 'tensorflow', 'mpi4py'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
