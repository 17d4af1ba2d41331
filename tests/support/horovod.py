"""Horovod, where it is: it is compiled for an environment, which works without it as well.

Where it isn't the tests skip with the command that adds it; with HPCNN_REQUIRE_HOROVOD=1, as in .ci/run, they fail.
"""

from __future__ import annotations

import os

import pytest

from hpcnn.wrappers.horovod_built import REMEDY, find_horovod

REQUIRED = os.environ.get("HPCNN_REQUIRE_HOROVOD") == "1"
NEEDS_HOROVOD = [
    pytest.mark.needs("torch"),
    pytest.mark.skipif(find_horovod() is None and not REQUIRED, reason=f"Horovod isn't installed: {REMEDY}"),
]
