"""What the facts come to, of what is installed and what was left: the backend, Horovod, folders of killed mpiruns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from hpcnn.cluster.facts import Facts
from hpcnn.cluster.findings import Finding, count, ok
from hpcnn.cluster.judge import alike
from hpcnn.wrappers.horovod_built import REMEDY


def judge_backend(ranks: Sequence[Facts]) -> list[Finding]:
    """Does the backend load, and does that leave the process its cores?"""
    tried = [(facts.place.host, facts.imported, facts.binding) for facts in ranks if facts.imported]
    found = []
    for host, imported, binding in tried:
        if imported.error:
            found.append(
                Finding(
                    "error",
                    "backend",
                    f"{imported.backend} does not load on {host}: {imported.error}",
                    "a training with it would end there",
                    "see `hpcnn backends`; bash env/create.sh makes it anew",
                )
            )
        elif len(imported.after) < len(imported.before):
            named = ", ".join(f"{name}={value}" for name, value in binding.items())
            found.append(
                Finding(
                    "warning",
                    "backend",
                    f"importing {imported.backend} on {host} narrows the process from "
                    f"{len(imported.before)} cores to {len(imported.after)}",
                    "all its threads would share those",
                    f"unset {' '.join(binding)} ({named}), and bind by the launcher"
                    if binding
                    else "bind by the launcher, and look for what binds: env | grep -E 'OMP|GOMP|KMP'",
                )
            )
    if found or not tried:
        return found
    hosts = ", ".join(host for host, _, _ in tried)
    return [ok("backend", f"{tried[0][1].backend} loads on {hosts}, and leaves the process its cores")]


def judge_horovod(ranks: Sequence[Facts]) -> list[Finding]:
    """Is each of Horovod's bindings for the version of its framework that is installed?"""
    first = ranks[0]
    if not first.horovod:
        return [ok("horovod", f"not installed, and not needed but by --reducer horovod ({REMEDY})")]
    here = {name: first.versions.get(name) or first.versions.get(f"{name}-cpu", "") for name in first.horovod_for}
    others = {
        name: here[name]
        for name, version in first.horovod_for.items()
        if here[name] and not _one_version(version, here[name])
    }
    if not others:
        return [ok("horovod", first.horovod)]
    what = f"{first.horovod}, but here is {', '.join(f'{name} {version}' for name, version in others.items())}"
    return [
        Finding(
            "warning",
            "horovod",
            what,
            "a binding is for one version of its framework: --reducer horovod refuses it",
            REMEDY,
        )
    ]


def _one_version(built: str, installed: str) -> bool:
    """2.13.0+cpu may be installed as 2.13.0: the package index leaves the local part out."""
    return built == installed or ("+" not in installed and built.partition("+")[0] == installed)


def judge_sessions(ranks: Sequence[Facts]) -> list[Finding]:
    """What mpiruns that were killed left behind."""
    found = []
    for host, here in alike([facts.place.host for facts in ranks]).items():
        folders = ranks[here[0]].stale
        if folders:
            shown = " ".join(folders[:3]) + (f" and {len(folders) - 3} more" if len(folders) > 3 else "")
            found.append(
                Finding(
                    "warning",
                    "leftovers",
                    f"{count(len(folders), 'folder')} of killed mpiruns on {host}: {shown}",
                    "an mpirun that is given the number of one of those processes gives up: \"The PMIx server's "
                    'listener thread failed to start"',
                    f"rm -r {' '.join(folders)}"
                    if len(folders) <= 3
                    else "remove those whose process is no more: "
                    f"for f in {_parent(folders[0])}/ompi.*; do [ -e /proc/${{f##*.}} ] || rm -r $f; done",
                )
            )
    return found or [ok("leftovers", "no folder of a killed mpirun")]


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)
