"""Two virtual nodes on one machine, with a cable of limited rate between them whose bytes can be counted.

Each is a network namespace with one interface, eth0, and for what runs there a host name, a /dev/shm and an /etc/hosts
of its own: without these MPI takes the two for one host. mpirun starts what is to run on the second by a script that
stands in for ssh. Needs root, and iproute2 (ip, tc).

    node-a  10.77.0.1  eth0 ---- veth pair, tbf at both ends ---- eth0  10.77.0.2  node-b
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOSTS = {"node-a": "10.77.0.1", "node-b": "10.77.0.2"}
PROGRAMS = ("ip", "tc", "unshare", "mount")
SYSTEM = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
ENTER = """\
#!/bin/sh -e
# enter NODE COMMAND...: run a command on a node
node=$1
shift
exec ip netns exec "$node-{number}" unshare --uts --mount sh -ec '
    hostname "$1"
    mount -t tmpfs tmpfs /dev/shm
    mount --bind {folder}/hosts /etc/hosts
    shift
    exec "$@"
' - "$node" "$@"
"""
AGENT = """\
#!/bin/sh -e
# agent NODE COMMAND...: as ssh, which gives the command to a shell
node=$1
shift
exec {folder}/enter "$node" sh -c "$*"
"""


@dataclass(frozen=True)
class TwoNodes:
    """`folder` holds the scripts; `number` tells namespaces of several such pairs apart."""

    folder: Path
    number: int

    def mpirun(self, *command: str, ranks: int = 2, map_by: str = "slot") -> tuple[str, ...]:
        """`command` on so many ranks of each node. Of `map_by` node, ranks take turns."""
        hosts = ",".join(f"{host}:{ranks}" for host in HOSTS)
        return (
            str(self.folder / "enter"), "node-a", "mpirun", "--prtemca", "plm_ssh_agent", str(self.folder / "agent"),
            "--host", hosts, "--map-by", map_by, "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", *command,
        )  # fmt: skip

    def traffic(self) -> int:
        """Bytes that have gone through the cable, in both directions, frames' headers with them."""
        link = json.loads(system("ip", "-json", "-stats", "-netns", f"node-a-{self.number}", "link", "show", "eth0"))
        return int(link[0]["stats64"]["tx"]["bytes"]) + int(link[0]["stats64"]["rx"]["bytes"])


@contextmanager
def two_nodes(rate: str) -> Iterator[TwoNodes]:
    """They are there until the block ends. `rate` as tc has it (1gbit). SystemExit where they cannot be had."""
    if why := obstacle():
        raise SystemExit(f"no virtual nodes: {why}")
    with tempfile.TemporaryDirectory(prefix="nodes-", dir="/tmp") as place:
        nodes = TwoNodes(Path(place), os.getpid())
        _write_scripts(nodes)
        try:
            _connect(nodes.number, rate)
            yield nodes
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"no virtual nodes: {' '.join(error.cmd)}: {error.stderr.strip()}") from None
        finally:
            for host in HOSTS:  # and with the first, the cable
                subprocess.run(["ip", "netns", "delete", f"{host}-{nodes.number}"], env=SYSTEM, capture_output=True)


def obstacle() -> str | None:
    """Why there can be none, or None; what the kernel refuses shows when it is asked."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=SYSTEM["PATH"]) is None]
    if missing:
        return f"no {', '.join(missing)} (apt-get install iproute2 util-linux)"
    return "network namespaces need root" if os.geteuid() else None


def _write_scripts(nodes: TwoNodes) -> None:
    lines = ["127.0.0.1 localhost", *(f"{address} {host}" for host, address in HOSTS.items())]
    (nodes.folder / "hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, text in (("enter", ENTER), ("agent", AGENT)):
        script = nodes.folder / name
        script.write_text(text.format(folder=nodes.folder, number=nodes.number), encoding="utf-8")
        script.chmod(0o755)


def _connect(number: int, rate: str) -> None:
    first, second = names = [f"{host}-{number}" for host in HOSTS]
    for name in names:
        system("ip", "netns", "add", name)
    system("ip", "link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second)
    limit = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
    for name, address in zip(names, HOSTS.values(), strict=True):
        system("ip", "-netns", name, "address", "add", f"{address}/24", "dev", "eth0")
        system("tc", "-netns", name, "qdisc", "add", "dev", "eth0", *limit)
        for interface in ("lo", "eth0"):
            system("ip", "-netns", name, "link", "set", interface, "up")


def system(*command: str) -> str:
    """Its output; raises CalledProcessError with what it says on its stderr."""
    return subprocess.run(command, env=SYSTEM, capture_output=True, text=True, check=True).stdout
