"""The benchmarks as modules, which find their neighbours as they do when they are started."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from tests.support.mpi import REPOSITORY

BENCHMARKS = REPOSITORY / "jobs" / "benchmarks"


def benchmark_module(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """Freshly imported, and its neighbours with it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for path in BENCHMARKS.glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    return importlib.import_module(name)
