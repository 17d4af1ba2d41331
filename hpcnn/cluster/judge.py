"""What the facts of all ranks come to: MPI's library, the launch, versions, clocks. Pure functions, a check each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath
from typing import TypeVar

from hpcnn.cluster.facts import Facts
from hpcnn.cluster.findings import Finding, count, ok, ranks_text
from hpcnn.cluster.preflight import LAUNCHERS, promised_size, start_findings

SECONDS_AHEAD = 1.0
"""Between clocks of hosts; a heartbeat counts as dead after a few seconds."""

_K = TypeVar("_K", bound=Hashable)


def alike(values: Sequence[_K]) -> dict[_K, list[int]]:
    """Ranks by what they have, in the order in which it first comes."""
    found: dict[_K, list[int]] = {}
    for rank, value in enumerate(values):
        found.setdefault(value, []).append(rank)
    return found


def _each(groups: Mapping[_K, Sequence[int]]) -> str:
    """`1.26.4 on rank 0, 2.1.0 on ranks 1 to 3`."""
    return ", ".join(f"{value or 'none'} on {ranks_text(ranks)}" for value, ranks in groups.items())


def judge_mpi(ranks: Sequence[Facts]) -> list[Finding]:
    """The library that is really loaded: one, the same for all, and of the launcher's installation."""
    libraries = alike([", ".join(_folders(facts.libraries)) for facts in ranks])
    versions = alike([facts.mpi for facts in ranks])
    if "" in versions:
        return []  # could not be loaded: judged where that was tried
    several = [rank for rank, facts in enumerate(ranks) if len(_folders(facts.libraries)) > 1]
    if several:
        return [
            Finding(
                "error",
                "mpi",
                f"{ranks_text(several)} loaded several MPI libraries: {', '.join(libraries)}",
                "a library that was compiled for one of them talks to the other",
                "unload the modules of all but one MPI, and make the environment with it: bash env/create.sh",
            )
        ]
    if len(versions) > 1:
        return [
            Finding(
                "error",
                "mpi",
                f"MPI libraries differ: {_each(versions)}",
                "ranks may not understand each other",
                "load the same module on every host, and one environment on a file system that all of them see",
            )
        ]
    first = ranks[0]
    library = first.libraries[0] if first.libraries else "a library of no known name"
    found = [ok("mpi", f"{first.mpi.split(', ')[0]}, loaded from {library}")]
    if first.mpirun and not _one_installation(first.mpirun, library):
        found.append(
            Finding(
                "warning",
                "mpi",
                f"mpirun is {first.mpirun}, and the library that is loaded {library}",
                "they are of two installations: ranks may each be a world of their own, or be started wrongly",
                "start with the mpirun that lies beside the library: bash env/with.sh BACKEND mpirun …",
            )
        )
    return found


def _folders(libraries: Sequence[str]) -> list[str]:
    return sorted({str(PurePosixPath(path).parent) for path in libraries})


def _one_installation(program: str, library: str) -> bool:
    """Whether PREFIX/bin has the one and PREFIX the other. /usr/local is not of /usr."""
    prefix = PurePosixPath(program).parent.parent
    local = PurePosixPath("/usr/local")
    path = PurePosixPath(library)
    if prefix == local.parent and path.is_relative_to(local):
        return False
    return path.is_relative_to(prefix) or not path.is_absolute()


def judge_launch(ranks: Sequence[Facts], strategy: str = "data") -> list[Finding]:
    """What a training's start would refuse; then whether the allocation is used."""
    places = [facts.place for facts in ranks]
    if refusals := start_findings(places, strategy):
        return refusals
    first, size = places[0], len(places)
    hosts = alike([place.host for place in places])
    where = next(iter(hosts)) if len(hosts) == 1 else ", ".join(f"{host} ({len(here)})" for host, here in hosts.items())
    promise = promised_size(first.variables)
    tasks = first.variables.get("SLURM_NTASKS", "")
    if first.launcher not in LAUNCHERS and promise is None:
        return [ok("launch", f"1 process, no launcher: mpirun -np 2 hpcnn doctor checks what ranks meet, on {where}")]
    if tasks.isdigit() and int(tasks) > size:
        return [
            Finding(
                "warning",
                "launch",
                f"{count(size, 'rank')} in an allocation of {tasks} tasks, on {where}",
                "the others are paid for and idle",
                f"start all of them: mpirun or srun without -n, or -n {tasks}",
            )
        ]
    by = f", as {promise[1]} says" if promise else ""
    return [ok("launch", f"{count(size, 'rank')}{by}, on {where}")]


def judge_versions(ranks: Sequence[Facts]) -> list[Finding]:
    """Packages, and this one's own code: what differs makes replicas drift apart without a word."""
    why = "ranks would compute with different code, and replicas drift apart"
    remedy = "use one environment and one clone on a file system that every host sees, or make both anew on each"
    found = []
    for name in dict.fromkeys(chain.from_iterable(facts.versions for facts in ranks)):
        groups = alike([facts.versions.get(name, "") for facts in ranks])
        if len(groups) > 1:
            found.append(Finding("error", "versions", f"{name} differs: {_each(groups)}", why, remedy))
    codes = alike([facts.code for facts in ranks])
    if len(codes) > 1:
        found.append(Finding("error", "versions", f"hpcnn's own modules differ: {_each(codes)}", why, remedy))
    processors = alike([facts.processor for facts in ranks])
    if len(processors) > 1:
        found.append(
            Finding(
                "warning",
                "versions",
                f"processors differ: {_each(processors)}",
                "the slowest sets the pace, and results repeat to float noise only",
                "ask for one kind: --constraint",
            )
        )
    packages = ", ".join(f"{name} {version}" for name, version in ranks[0].versions.items())
    return found or [ok("versions", packages if len(ranks) == 1 else f"{packages}, on all ranks")]


def judge_clocks(ranks: Sequence[Facts]) -> list[Finding]:
    """The clocks of hosts, by which heartbeats and files are dated. Nothing of one host."""
    hosts = alike([facts.place.host for facts in ranks])
    if len(hosts) == 1:
        return []
    ahead = {host: ranks[here[0]].ahead for host, here in hosts.items()}
    host = max(ahead, key=lambda name: abs(ahead[name]))
    what = f"the clock of {host} is {abs(ahead[host]):.3g} s {'ahead of' if ahead[host] > 0 else 'behind'} rank 0's"
    if abs(ahead[host]) < SECONDS_AHEAD:
        return [ok("clocks", f"{what}, no other is farther off")]
    why = "a rank that is alive may look dead (heartbeats are dated), and a file older than it is"
    return [Finding("warning", "clocks", what, why, "have the hosts' clocks set: chronyc tracking, timedatectl")]
