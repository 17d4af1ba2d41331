"""What messages take here: latency and bandwidth between two ranks of a host and of two hosts, and a sum over all.

Well under a second in all, whatever the network: a few messages tell how many fit. Ranks that are not measured sleep,
since they may share a core with those that are.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hpcnn.cluster.findings import Finding, ok

SECONDS = 0.1
"""That a measurement may take."""
SMALL, LARGE = 8, 4 << 20
"""Bytes. A step's gradients are of the order of the large ones."""
FEWEST, MOST = 3, 2000
SLOW_ON_HOST, SLOW_BETWEEN = 100e-6, 500e-6
"""Seconds that a small message may take: shared memory needs about 1e-6, Ethernet 3e-5."""
NARROW_ON_HOST, NARROW_BETWEEN = 200e6, 50e6
"""Bytes a second; less is a hundredth of what shared memory carries, and half a gigabit of Ethernet."""


@dataclass(frozen=True)
class Link:
    """Between two ranks: seconds of a small message, and bytes a second of large ones."""

    ranks: tuple[int, int]
    hosts: tuple[str, str]
    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Sums:
    """Over all ranks: seconds of a sum of one number, and of `LARGE` bytes."""

    ranks: int
    small: float
    large: float


def pairs(hosts: Sequence[str]) -> list[tuple[int, int]]:
    """Rank 0 with the first other one of its host, and with the first of another host."""
    others = range(1, len(hosts))
    near = [rank for rank in others if hosts[rank] == hosts[0]]
    far = [rank for rank in others if hosts[rank] != hosts[0]]
    return [(0, some[0]) for some in (near, far) if some]


def measure_links(comm: Any, hosts: Sequence[str]) -> list[Link]:
    """Collective. Each of `pairs`, one after the other."""
    links = []
    for first, second in pairs(hosts):
        found = None
        if comm.rank in (first, second):
            other = second if comm.rank == first else first
            one_way = [_exchange(comm, other, comm.rank == first, size) / 2 for size in (SMALL, LARGE)]
            found = Link((first, second), (hosts[first], hosts[second]), one_way[0], LARGE / one_way[1])
        sleep_until_all(comm)
        links.append(comm.bcast(found, root=first))
    return links


def measure_sums(comm: Any) -> Sums:
    """Collective."""
    import numpy as np
    from mpi4py import MPI

    seconds = []
    for size in (SMALL, LARGE):
        numbers = np.zeros(size // 4, dtype=np.float32)
        seconds.append(_repeated(partial(comm.Allreduce, MPI.IN_PLACE, numbers), comm))
    return Sums(comm.size, *seconds)


def _repeated(work: Callable[[], Any], comm: Any) -> float:
    """Median seconds of a collective; rank 0 says how often fits."""
    work()
    began = time.perf_counter()
    work()
    times = comm.bcast(_times(time.perf_counter() - began))
    return _median([_timed(work) for _ in range(times)])


def _exchange(comm: Any, other: int, begins: bool, size: int) -> float:
    """Median seconds of a message of `size` bytes to `other` and back."""
    import numpy as np

    message = np.zeros(size, dtype=np.uint8)

    def there_and_back() -> None:
        if begins:
            comm.Send(message, dest=other)
            comm.Recv(message, source=other)
        else:
            comm.Recv(message, source=other)
            comm.Send(message, dest=other)

    there_and_back()
    once = _timed(there_and_back)
    times = comm.sendrecv(_times(once), dest=other, source=other)
    if begins:
        times = _times(once)
    return _median([_timed(there_and_back) for _ in range(times)])


def _times(seconds: float) -> int:
    """How often what takes so long fits."""
    return max(FEWEST, min(MOST, int(SECONDS / max(seconds, 1e-9))))


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds)


def sleep_until_all(comm: Any) -> None:
    """Collective. A barrier at which who is early sleeps."""
    from hpcnn.parallel.waiting import wait_asleep

    wait_asleep(comm.Ibarrier())


def link_finding(link: Link) -> Finding:
    """The figures of a pair, held against what such a link is good for."""
    near = link.hosts[0] == link.hosts[1]
    where = f"on {link.hosts[0]}" if near else f"from {link.hosts[0]} to {link.hosts[1]}"
    what = (
        f"ranks {link.ranks[0]} and {link.ranks[1]} {where}: latency {seconds_text(link.latency)}, "
        f"bandwidth {link.bandwidth / 1e9:.3g} GB/s"
    )
    slow, narrow = (SLOW_ON_HOST, NARROW_ON_HOST) if near else (SLOW_BETWEEN, NARROW_BETWEEN)
    if link.latency <= slow and link.bandwidth >= narrow:
        return ok("network", what)
    if near:
        return Finding(
            "warning", "network", what, f"shared memory takes about 1 us; over {seconds_text(slow)} or under "
            f"{narrow / 1e9:g} GB/s, ranks share a core, or have one with another program, or messages go another way",
            "a core for each rank (cores, above; top); unset OMPI_MCA_btl and OMPI_MCA_pml; see that /dev/shm has room",
        )  # fmt: skip
    return Finding(
        "warning", "network", what, f"Ethernet takes about 30 us; over {seconds_text(slow)} or under "
        f"{narrow / 1e9:g} GB/s, messages may go by the wrong interface",
        "name the fast one (ip -br address lists them): export OMPI_MCA_btl_tcp_if_include=NAME, or UCX_NET_DEVICES",
    )  # fmt: skip


def sums_finding(sums: Sums) -> Finding:
    """Not judged: a step's time says whether it is much."""
    return ok(
        "network", f"allreduce over {sums.ranks} ranks: {seconds_text(sums.small)} of one number, "
        f"{seconds_text(sums.large)} of {LARGE >> 20} MiB",
    )  # fmt: skip


def seconds_text(seconds: float) -> str:
    """Three digits, in the unit that they are read in."""
    for unit, scale in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * scale * 0.9995:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"
