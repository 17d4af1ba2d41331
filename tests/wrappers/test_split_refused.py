"""Backends that compute a backward at once say so, by name, before anything is computed."""

from __future__ import annotations

import pytest

from hpcnn.errors import BackendError
from tests.wrappers.backends import INSTALLED
from tests.wrappers.probes import DEEP, MIDDLE, build, some_rows


@pytest.mark.parametrize("backend", [name for name in INSTALLED if name != "torch"])
def test_a_backend_without_halves_refuses_them(backend: str) -> None:
    middle, last = build(backend, MIDDLE), build(backend, DEEP.whole)
    assert not middle.capabilities.can_split_backward
    rows, ends = some_rows(MIDDLE, 2), some_rows(DEEP.whole, 2)
    for call in (
        middle.check_split,
        lambda: middle.backward_input(0, rows.output_gradient),
        lambda: last.loss_backward_input(0, ends.labels, 2.0),
        lambda: middle.backward_weights(0),
    ):
        with pytest.raises(BackendError, match=rf"{backend} cannot compute .*choose another --schedule"):
            call()
