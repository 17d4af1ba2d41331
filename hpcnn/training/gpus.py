"""--device cuda: which GPU a rank computes on, one of its own, or a refusal.

Ranks of a host take the GPUs that they see in turn: those of a workstation by their places on the host, those that
Slurm gave each task as they are. Each then sees its own alone (CUDA_VISIBLE_DEVICES, before a framework starts CUDA),
which is the same to every framework.

NOTE: the choice is tested, on given lists; it has not been run on a machine with GPUs yet.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from typing import Any, NamedTuple

from hpcnn.data.agree import attempt
from hpcnn.errors import BackendError, LaunchError

VISIBLE = "CUDA_VISIBLE_DEVICES"
_LIST = ("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")


class Seen(NamedTuple):
    """What a rank sees: its host and the UUIDs of GPUs."""

    host: str
    gpus: tuple[str, ...]


def claim_gpu(comm: Any) -> str:
    """Collective. This rank's GPU by UUID, from now on the only one that it sees.

    Raises BackendError where a rank sees none, LaunchError where there are too few."""
    mine = attempt(comm, lambda: chosen_of(installed_gpus(), os.environ.get(VISIBLE)))
    seen = [Seen(*one) for one in comm.allgather((socket.gethostname(), mine))]
    own: str = attempt(comm, lambda: assigned(seen)[comm.rank])
    os.environ[VISIBLE] = own
    return own


def installed_gpus() -> tuple[str, ...]:
    """UUIDs of this host's GPUs. BackendError where there is no driver or no GPU."""
    try:
        done = subprocess.run(_LIST, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_gpu(f"nvidia-smi: {getattr(error, 'strerror', None) or error}") from None
    found = tuple(line.strip() for line in done.stdout.splitlines() if line.strip())
    if done.returncode or not found:
        said = " ".join((done.stdout + done.stderr).split()) or "nothing"
        raise _no_gpu(f"nvidia-smi says: {said}")
    return found


def chosen_of(installed: Sequence[str], visible: str | None) -> tuple[str, ...]:
    """Of `installed`, what CUDA_VISIBLE_DEVICES lets a process see: places or beginnings of UUIDs, up to the first that
    is neither; parts of GPUs (MIG-...) as they are."""
    if visible is None:
        return tuple(installed)
    found: list[str] = []
    for word in visible.split(","):
        name = word.strip()
        matching = [gpu for gpu in installed if name.startswith("GPU-") and gpu.startswith(name)]
        if name.isdigit() and int(name) < len(installed):
            found.append(installed[int(name)])
        elif name.startswith("MIG-") or len(matching) == 1:
            found.append(matching[0] if matching else name)
        else:
            break
    return tuple(found)


def assigned(seen: Sequence[Seen]) -> list[str]:
    """A GPU for each rank, none twice on a host. Raises BackendError or LaunchError as `claim_gpu`."""
    taken: set[tuple[str, str]] = set()
    found = []
    for rank, (host, gpus) in enumerate(seen):
        if not gpus:
            raise BackendError(
                f"--device cuda: rank {rank} on {host} sees no GPU ({VISIBLE} hides them, or Slurm gave it none: "
                "--gpus-per-task=1)"
            )
        own = next((gpu for gpu in gpus if (host, gpu) not in taken), None)
        if own is None:
            ranks = sum(other.host == host for other in seen)
            count = len({gpu for other in seen if other.host == host for gpu in other.gpus})
            raise LaunchError(
                f"--device cuda: {ranks} ranks on {host} see {count} GPU{'s' * (count != 1)} between them: start one "
                f"rank a GPU (mpirun -np {count}, or sbatch --ntasks-per-node=N --gpus-per-task=1)"
            )
        taken.add((host, own))
        found.append(own)
    return found


def _no_gpu(why: str) -> BackendError:
    return BackendError(f"--device cuda: {socket.gethostname()} has no GPU to compute on ({why}): leave --device out")
