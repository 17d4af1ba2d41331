"""What a test needs and a machine may lack: the test is skipped with the reason, or fails where it was promised."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(why: str, promise: str) -> NoReturn:
    """`promise`: the variable that says, by 1, that it is there."""
    if os.environ.get(promise) == "1":
        pytest.fail(f"{promise}=1, but {why}", pytrace=False)
    pytest.skip(why)
