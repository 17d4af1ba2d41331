"""Where ranks that know each other through MPI meet again by themselves: addresses and ports for a framework's servers.

On one host they meet on the loopback, which every host has. On several each needs an address that the others can reach,
which only a person may know: `interface` of the options.
"""

from __future__ import annotations

import contextlib
import fcntl
import random
import socket
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hpcnn.data.agree import attempt
from hpcnn.errors import BackendError

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # netdevice(7)
_LOWEST_PORT = 10_000
_TRIES = 100


class Meeting(NamedTuple):
    """An IPv4 address of this host for the other ranks, and the network interface that has it."""

    address: str
    interface: str


def meeting_point(comm: Any, interface: str = "") -> Meeting:
    """Collective. For the ranks of `comm`; of `interface`, where that is given.

    Raises BackendError, on all ranks alike, where there is none."""
    own = socket.gethostname()
    everyone: list[tuple[str, list[str]]] = comm.allgather((own, _not_loopback(addresses().values())))
    others = [(host, *known) for host, known in everyone if host != own]
    return attempt(comm, lambda: _named(interface) if interface else _found(others[0] if others else ()))


def _not_loopback(known: Iterable[str]) -> list[str]:
    return [address for address in known if not address.startswith("127.")]


def _named(interface: str) -> Meeting:
    known = addresses()
    if interface not in known:
        raise BackendError(
            f"[reducer.native] interface {interface!r} is none of {socket.gethostname()} with an IPv4 address: "
            f"choose from {', '.join(known)}"
        )
    return Meeting(known[interface], interface)


def _found(other: Sequence[str]) -> Meeting:
    """`other`: name and addresses of a rank's host that is another one, or nothing where there is none."""
    interfaces = {address: name for name, address in addresses().items()}
    for address in _not_loopback(map(_towards, other)) if other else (LOOPBACK,):
        if address in interfaces:
            return Meeting(address, interfaces[address])
    raise BackendError(
        f"{socket.gethostname()} finds no network interface towards {other[0] if other else 'itself'}: name it by "
        "--reducer-option interface=NAME (ip -br address lists them)"
    )


def _towards(host: str) -> str:
    """The own address that a message to `host` would come from; the loopback's where there is no way."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
            unsent.connect((host, 9))
            address: str = unsent.getsockname()[0]
            return address
    except OSError:
        return LOOPBACK


def addresses() -> dict[str, str]:
    """IPv4 addresses of this host by network interface; those without one are left out."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as some:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(some.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()))
                found[name] = socket.inet_ntoa(answer[20:24])
    return found


def hold_port(address: str) -> socket.socket:
    """A socket bound to a free port of `address`, for a server that cannot choose one itself; close it right before.

    Not of those that the system gives to outgoing connections, so that nobody gets it by chance in between.
    Raises BackendError where all that were tried are taken."""
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            held.bind((address, chance.randrange(_LOWEST_PORT, max(first_given, _LOWEST_PORT + 1))))
            return held
        except OSError:
            held.close()
    raise BackendError(f"no free port on {address} in {_TRIES} tries: are thousands of servers running?")
