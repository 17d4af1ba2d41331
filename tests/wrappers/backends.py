"""Every registered backend as a test's argument; one that is not installed in this environment is skipped by name."""

from __future__ import annotations

import pytest

from hpcnn.wrappers.registry import BACKENDS


def _parameter(name: str) -> object:
    missing = ", ".join(BACKENDS[name].missing())
    return pytest.param(name, marks=pytest.mark.skipif(bool(missing), reason=f"{missing} is not installed"))


EVERY_BACKEND = pytest.mark.parametrize("backend", [_parameter(name) for name in BACKENDS])
