"""Where tests keep what compilers made, for their next run: variables of programs that know no store of hpcnn's."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = Path(os.environ.get("HPCNN_CACHE") or Path.home() / ".cache" / "hpcnn")
THEANO = {"THEANO_FLAGS": f"base_compiledir={CACHE / 'theano-of-tests'}"}
QUICK_XLA = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
    "JAX_COMPILATION_CACHE_DIR": str(CACHE / "xla"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""XLA compiles each program for each number of rows: without optimising, in half the time, and what it has compiled
before, for the same operations by the same version, not again."""
INDUCTOR = {"TORCHINDUCTOR_CACHE_DIR": str(CACHE / "inductor-of-tests")}
