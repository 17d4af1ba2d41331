"""Addresses and ports at which ranks meet by themselves."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hpcnn.data.agree import Alone
from hpcnn.errors import BackendError
from hpcnn.wrappers.rendezvous import LOOPBACK, Meeting, addresses, hold_port, meeting_point


class Elsewhere(Alone):
    """Rank 0 of two, the other on a host whose name nobody knows."""

    size = 2

    def __init__(self, *known: str) -> None:
        self.known = list(known)

    def allgather(self, sendobj: object) -> list[object]:
        return [sendobj, None if not isinstance(sendobj, tuple) else ("nowhere.invalid", self.known)]


def test_ranks_of_one_host_meet_on_the_loopback() -> None:
    assert meeting_point(Alone()) == Meeting(LOOPBACK, "lo")


def test_an_interface_is_taken_at_its_word() -> None:
    for name, address in addresses().items():
        assert meeting_point(Alone(), name) == Meeting(address, name)


def test_an_unknown_interface_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BackendError, match=r"interface 'ib7' is none of .*choose from .*\blo\b"):
        meeting_point(Alone(), "ib7")


def test_of_a_host_of_unknown_name_the_addresses_are_tried() -> None:
    for name, address in addresses().items():
        if name != "lo":
            assert meeting_point(Elsewhere(address)) == Meeting(address, name)


def test_a_host_without_a_way_to_the_others_asks_for_the_network() -> None:
    with pytest.raises(BackendError, match=r"no network interface towards nowhere\.invalid: .*interface=NAME"):
        meeting_point(Elsewhere())


def test_a_port_is_held_until_its_socket_is_closed_and_none_that_the_system_gives_away() -> None:
    given_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with hold_port(LOOPBACK) as held:
        port = held.getsockname()[1]
        assert port < given_from
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, port))
    with socket.socket() as server:
        server.bind((LOOPBACK, port))
