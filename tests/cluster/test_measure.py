"""Messages measured on real ranks, and given figures held against what such a link is good for."""

from __future__ import annotations

from typing import Any

import pytest

from hpcnn.cluster.measure import (
    Link,
    Sums,
    link_finding,
    measure_links,
    measure_sums,
    pairs,
    seconds_text,
    sums_finding,
)
from tests.support.pool import on_ranks, results


def measured(comm: Any, hosts: list[str]) -> Any:
    return measure_links(comm, hosts), measure_sums(comm)


@pytest.mark.parametrize(
    ("hosts", "wanted"),
    [
        (["n1"], []),
        (["n1", "n1"], [(0, 1)]),
        (["n1", "n2", "n1"], [(0, 2), (0, 1)]),
        (["n1", "n2", "n3"], [(0, 1)]),
    ],
)
def test_rank_0_is_measured_with_one_of_its_host_and_one_of_another(hosts: list[str], wanted: list[Any]) -> None:
    assert pairs(hosts) == wanted


def test_real_messages_take_some_time_and_every_rank_knows_which() -> None:
    hosts = ["n1", "n1", "n2"]
    everyone = results(on_ranks(3, measured, hosts))
    links, sums = everyone[0]
    assert [link.ranks for link in links] == [(0, 1), (0, 2)]
    assert [link.hosts for link in links] == [("n1", "n1"), ("n1", "n2")]
    assert all(0 < link.latency < 10 and 1e3 < link.bandwidth < 1e13 for link in links)
    assert sums.ranks == 3
    assert 0 < sums.small < 10
    assert 0 < sums.large < 10
    assert all(other[0] == links for other in everyone)


@pytest.mark.parametrize(
    ("hosts", "latency", "bandwidth", "level", "words"),
    [
        (("n1", "n1"), 1e-6, 5e9, "ok", "ranks 0 and 1 on n1: latency 1 us, bandwidth 5 GB/s"),
        (("n1", "n1"), 2e-3, 5e9, "warning", "/dev/shm"),
        (("n1", "n1"), 1e-6, 1e8, "warning", "/dev/shm"),
        (("n1", "n2"), 3e-5, 1.2e8, "ok", "ranks 0 and 1 from n1 to n2: latency 30 us, bandwidth 0.12 GB/s"),
        (("n1", "n2"), 2e-3, 1.2e8, "warning", "OMPI_MCA_btl_tcp_if_include"),
        (("n1", "n2"), 3e-5, 1e6, "warning", "OMPI_MCA_btl_tcp_if_include"),
    ],
)
def test_a_link_is_held_against_its_kind(
    hosts: tuple[str, str], latency: float, bandwidth: float, level: str, words: str
) -> None:
    found = link_finding(Link((0, 1), hosts, latency, bandwidth))
    assert found.level == level
    assert words in found.line


def test_sums_are_told_in_units_that_are_read() -> None:
    assert (
        sums_finding(Sums(4, 2.5e-6, 3.25e-3)).what == "allreduce over 4 ranks: 2.5 us of one number, 3.25 ms of 4 MiB"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.2345e-6, "1.23 us"), (9.9999e-4, "1 ms"), (0.25, "250 ms"), (0.9999, "1 s"), (2.0, "2 s")]
)
def test_seconds_have_three_digits(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
