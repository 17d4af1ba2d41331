"""Models that tests borrow go back when a test ends."""

from __future__ import annotations

import pytest

from tests.wrappers.probes import take_back


def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    if call.when == "call":
        take_back(in_order=call.excinfo is None)
