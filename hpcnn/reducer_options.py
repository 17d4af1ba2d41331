"""Switches of what adds gradients across ranks: a table a reducer in the run file, known before it is imported.

    [reducer.mpi]
    wire = "float16"

The same by flag, for the reducer that runs: `--reducer-option wire=float16`. run.json holds all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcnn.errors import ConfigError
from hpcnn.options import option, resolve


@dataclass(frozen=True, kw_only=True)
class MpiOptions:
    """mpi4py: inside a node through shared memory, between nodes by messages, meanwhile going on to compute."""

    segments: int | None = option(
        None,
        "pieces of the network that are added on their own, as soon as gone back through (default: by their sizes)",
    )
    algorithm: str = option(
        "auto", "inside a node first, through its memory; or all ranks at once, by messages", ("auto", "nodes", "flat")
    )
    wire: str = option("float32", "numbers in messages between ranks", ("float32", "float16", "bfloat16"))
    progress: str = option(
        "thread", "what moves messages while the rank computes: a thread, or nothing", ("thread", "none")
    )
    buffers: str = option(
        "auto",
        "where --device cuda has gradients added: by the GPU's memory, if MPI reads it, or the host's",
        ("auto", "device", "host"),
    )


@dataclass(frozen=True, kw_only=True)
class PlainOptions:
    """mpi4py: one blocking Allreduce behind the backward, the reference."""


@dataclass(frozen=True, kw_only=True)
class HorovodOptions:
    """Horovod, on the communicator of mpi4py."""

    compression: str = option("none", "numbers of gradients in messages between ranks", ("none", "fp16"))
    op: str = option("sum", "add gradients; or Adasum, which changes results (2, 4, 8 ... ranks)", ("sum", "adasum"))
    cycle_time_ms: float = option(0.1, "milliseconds between two looks for what there is to add (Horovod's own: 1)")
    timeline: str = option("", "file for Horovod's timeline, which Perfetto opens")


@dataclass(frozen=True, kw_only=True)
class NativeOptions:
    """The framework's own: DistributedDataParallel, MultiWorkerMirroredStrategy."""

    bucket_cap_mb: int | None = option(None, "MiB of gradient that are sent at once (torch; default: its own, 25)")
    find_unused_parameters: bool = option(False, "let DistributedDataParallel look for weights without a gradient")
    devices: int = option(1, "parts of one process's CPU that MirroredStrategy spans (tensorflow), instead of ranks")
    interface: str = option("", "network interface on which ranks meet (default: the one towards the other hosts)")
    timeout_seconds: float = option(600.0, "how long ranks wait for each other before they give up")


ReducerOptions = MpiOptions | PlainOptions | HorovodOptions | NativeOptions

TABLES: dict[str, type[ReducerOptions]] = {
    "mpi": MpiOptions,
    "plain": PlainOptions,
    "horovod": HorovodOptions,
    "native": NativeOptions,
}


def resolve_reducer(reducer: str, given: Mapping[str, Any], where: str | None = None) -> Any:
    """The reducer's options with `given` over the defaults.

    Raises ConfigError, after `where` ([reducer.NAME] by default), for an unknown key or a value of another type."""
    where = f"[reducer.{reducer}]" if where is None else where
    if reducer not in TABLES:
        raise ConfigError(f"{where} is unknown: choose from {', '.join(TABLES)}")
    return resolve(TABLES[reducer], given, where)
