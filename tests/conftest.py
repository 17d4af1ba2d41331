"""What holds for all tests: no deadlines, and no ranks left behind."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.support import pool

# A timed assertion fails on a busy machine: neither an example nor its making has a limit.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_sessionfinish() -> None:
    pool.end()
