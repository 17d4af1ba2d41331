"""Is the folder of results one folder? Rank 0 writes a file that each rank looks for, and looks for theirs.

Where it is not (a disk of each host's own, a container that mounts another), a run's files lie scattered, and ranks
that wait for a file of rank 0's wait for ever.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from hpcnn.cluster.findings import Finding, count, ok, ranks_text

SECONDS = 3.0
"""NFS shows another host's new file within the time that it keeps names, usually 3 s for a folder that is new."""
_SLEEP = 0.05


def judge_folder(comm: Any, out: Path, hosts: list[str]) -> Finding:
    """Collective. `out` need not be there: then the folder in which it would be made is looked at."""
    folder, trouble = None, ""
    if comm.rank == 0:
        try:
            folder = Path(tempfile.mkdtemp(prefix=".hpcnn-doctor-", dir=nearest_folder(out)))
            (folder / "first").touch()
        except OSError as error:
            trouble = f"{nearest_folder(out)}: cannot be written: {error.strerror}"
    folder, trouble = comm.bcast((folder, trouble))
    if folder is None:
        return Finding("error", "folder", trouble, "a run leaves its results there", "choose another --out")
    sees, wrote = appears(folder / "first"), False
    with contextlib.suppress(OSError):
        (folder / f"r{comm.rank}").touch()
        wrote = True
    everyone: list[tuple[bool, bool]] = comm.allgather((sees, wrote))
    unseen = []
    if comm.rank == 0:
        names = [f"r{rank}" for rank, (_, written) in enumerate(everyone) if written]
        unseen = [int(name[1:]) for name in names if not appears(folder / name)]
        shutil.rmtree(folder, ignore_errors=True)
    unseen = comm.bcast(unseen)
    return _judged(out, hosts, everyone, unseen)


def _judged(out: Path, hosts: list[str], everyone: list[tuple[bool, bool]], unseen: list[int]) -> Finding:
    place = nearest_folder(out)
    blind = [rank for rank, (sees, _) in enumerate(everyone) if not sees]
    apart = sorted({*blind, *unseen})
    if apart:
        on = ", ".join(dict.fromkeys(hosts[rank] for rank in apart))
        return Finding(
            "error", "folder", f"{place} is not the same folder for all: {ranks_text(apart)} on {on} and rank 0 on "
            f"{hosts[0]} see no file of each other's", "a run's files would be scattered over hosts",
            "give --out on a file system that all hosts share, or mount it into the container",
        )  # fmt: skip
    if mute := [rank for rank, (_, written) in enumerate(everyone) if not written]:
        on = ", ".join(dict.fromkeys(hosts[rank] for rank in mute))
        return Finding(
            "error", "folder", f"{place}: cannot be written by {ranks_text(mute)} on {on}",
            "each rank keeps its heartbeat there", "mount it for writing, or choose another --out",
        )  # fmt: skip
    number = len(set(hosts))
    return ok("folder", f"{place} is one folder for {count(len(hosts), 'rank')} on {count(number, 'host')}")


def nearest_folder(out: Path) -> Path:
    """`out`, or the nearest one above it that is there."""
    out = out.absolute()
    return next((path for path in (out, *out.parents) if path.is_dir()), Path("/"))


def appears(path: Path, seconds: float = SECONDS) -> bool:
    """Whether it is there, within the time that a file system on the network may take."""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(_SLEEP)
    return True
