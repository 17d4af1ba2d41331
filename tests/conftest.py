"""What holds for all tests: no deadlines, no ranks left behind, each environment runs those of its frameworks, and of
the matrices that torch runs in full the other backends run a covering set, unless --full is given.

What is left out is counted in the last lines. Where tests are shared out among processes (pytest-xdist, as env/test.sh
does), those of a file stay together, and files that take long come first.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hpcnn.cluster.begun import TRANSPORTS
from hpcnn.wrappers.registry import BACKENDS
from tests.support import pool
from tests.support.covering import covering
from tests.support.order import longest_first, read_seconds, seconds_file, write_seconds
from tests.training.worlds import SHARED

# A timed assertion fails on a busy machine: neither an example nor its making has a limit.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# What tests start is mostly ranks, some by mpi4py alone: each of them starts a second sooner (hpcnn.cluster.begun).
os.environ.setdefault(TRANSPORTS, "^ofi")

IN_FULL = "torch"
"""The backend that runs every case of a matrix."""
ON_CLUSTER = "tests/slurm/"
LEFT = pytest.StashKey[Counter[str]]()
SECONDS = seconds_file(sys.prefix)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="every case of the matrices in every backend (tests/full.sh)")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT] = Counter()
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Seconds())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs have it; tests send it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a framework of the other environment, which runs it there, and what is left to --full.

    That no environment lacks one of its own is a test of tests/wrappers/test_registry.py."""
    _leave(config, items, "the other environment", [item for item in items if not _has_what_it_needs(item)])
    if not config.getoption("full"):
        _leave(config, items, "tests/full.sh", _uncovered(items))
    if hasattr(config, "workerinput"):
        items[:] = _in_order(items, config.workerinput["seconds"])


def _leave(config: pytest.Config, items: list[pytest.Item], whom: str, left: Sequence[pytest.Item]) -> None:
    if left:
        config.hook.pytest_deselected(items=left)
        without = set(left)
        items[:] = [item for item in items if item not in without]
        config.stash[LEFT][whom] += len(left)


def _has_what_it_needs(item: pytest.Item) -> bool:
    return all(importlib.util.find_spec(name) for mark in item.iter_markers("needs") for name in mark.args)


def _uncovered(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """What compiles for minutes, or is marked to be left; of each matrix and each backend but the one that runs it in
    full, what is not in its covering set."""
    matrices: dict[tuple[str, str], list[pytest.Function]] = {}
    for item in items:
        if item.get_closest_marker("matrix"):
            assert isinstance(item, pytest.Function)
            backend = str(item.callspec.params["backend"])
            if backend != IN_FULL:
                matrices.setdefault((item.nodeid.partition("[")[0], backend), []).append(item)
    left = [item for item in items if item.get_closest_marker("compiles") or item.get_closest_marker("full")]
    for (_, backend), cases in matrices.items():
        parameters = sorted(set(cases[0].callspec.params) - {"backend"})
        numbers = [tuple(id(case.callspec.params[name]) for name in parameters) for case in cases]
        kept = set(covering(numbers, turn=list(BACKENDS).index(backend)))
        left += [case for place, case in enumerate(cases) if place not in kept]
    return left


def _group(nodeid: str) -> str:
    """What one process runs: a file, or all that is tested on the one private cluster."""
    file = nodeid.partition("::")[0]
    return ON_CLUSTER if file.startswith(ON_CLUSTER) else file


def _in_order(items: Sequence[pytest.Item], seconds: Mapping[str, float]) -> list[pytest.Item]:
    """What is taken last ought to be short. `seconds`: what groups took the last time."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(_group(item.nodeid), []).append(item)
    sizes = {
        name: (len(group), sum(item.get_closest_marker("slow") is not None for item in group))
        for name, group in groups.items()
    }
    return [item for name in longest_first(sizes, seconds) for item in groups[name]]


class Seconds:
    """What each group takes, seen by the process that hands them out; kept when all went through."""

    def __init__(self) -> None:
        self.took: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """All processes have to collect in the same order."""
        node.workerinput["seconds"] = read_seconds(SECONDS)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.took[_group(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not session.config.option.keyword:
            write_seconds(SECONDS, self.took)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups in the order in which they were collected."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    pool.end()
    SHARED.close()
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput["left"] = dict(session.config.stash[LEFT])  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every process of pytest-xdist collects, and leaves out, the same."""
    node.config.stash[LEFT] |= Counter(getattr(node, "workeroutput", {}).get("left", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for whom, count in config.stash[LEFT].items():
        terminalreporter.write_line(f"{count} tests left to {whom}")
