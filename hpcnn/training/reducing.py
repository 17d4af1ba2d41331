"""What adds the gradients of replicas, made as --reducer says: a reducer of messages, or the framework's own step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpcnn.config import RunConfig
from hpcnn.data.agree import attempt
from hpcnn.errors import ConfigError
from hpcnn.parallel.around import Shares
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.inject import injected_reducer
from hpcnn.parallel.parts import Links, Part
from hpcnn.parallel.reducers import make_reducer
from hpcnn.parallel.reducers.device_reducer import mpi_reads_gpus
from hpcnn.reducer_options import MpiOptions, NativeOptions, resolve_reducer
from hpcnn.wrappers.fused import FusedStep, check_fused, fused_class
from hpcnn.wrappers.registry import open_backend


def check_reducer(config: RunConfig) -> None:
    """BackendError where the backend has no parallelism of its own and --reducer native asks for it."""
    if config.reducer == "native":
        check_fused(config.backend_label)


def begin_native(config: RunConfig, comm: Any, links: Links, threads: int) -> None:
    """Collective. The framework's own parallelism, where --reducer asks for it. Raises alike on all ranks.

    It begins before the framework computes anything, and completing native layers is computing."""
    options = resolve_reducer(config.reducer, config.reducer_option)
    if isinstance(options, NativeOptions):
        attempt(comm, lambda: open_backend(config.backend, config.backend_option, threads, config.device))
        attempt(comm, lambda: fused_class(config.backend_label).set_process_up(links.replicas, options))


def with_reducer(config: RunConfig, comm: Any, grid: Grid, links: Links) -> Links:
    """Collective. The links with what adds over replicas, where there are several. Raises alike on all ranks."""
    options, label = resolve_reducer(config.reducer, config.reducer_option), config.backend_label
    if isinstance(options, NativeOptions) or grid.dp == 1:
        return links
    name = "device" if attempt(comm, lambda: adds_on_device(config, comm)) else config.reducer
    made = attempt(comm, lambda: make_reducer(name, links.replicas, options, world=comm, backend=label))
    return replace(links, reducer=Shares(injected_reducer(config.inject, made)))


def adds_on_device(config: RunConfig, comm: Any) -> bool:
    """Collective. Whether MPI gets gradients where GPUs have them. Raises alike on all ranks where that was asked for
    and cannot be."""
    options = resolve_reducer(config.reducer, config.reducer_option)
    asked = isinstance(options, MpiOptions) and options.buffers == "device"
    if not isinstance(options, MpiOptions) or options.buffers == "host":
        return False
    obstacle = _obstacle(config, options)
    if obstacle is None and not all(comm.allgather(mpi_reads_gpus())):
        obstacle = "this MPI says that it reads no GPU's memory (PyPI's does not: --mpi site, with one built for CUDA)"
    if asked and obstacle:
        raise ConfigError(f"--reducer-option buffers=device: {obstacle}: leave it out, and the host's memory is used")
    return obstacle is None


def _obstacle(config: RunConfig, options: MpiOptions) -> str | None:
    if config.device != "cuda":
        return "there is no device but the host's CPUs without --device cuda"
    if config.backend != "torch":
        return f"{config.backend_label} lends no gradient on its device, torch does"
    if config.inject:
        return f"--inject {config.inject} changes messages of the host"
    for name, value in (("algorithm", "nodes"), ("wire", "float16"), ("wire", "bfloat16")):
        if getattr(options, name) == value:
            return f"{name}={value} is for messages of the host"
    return None


def fused_step(config: RunConfig, links: Links, parts: Mapping[int, Part]) -> FusedStep | None:
    """Collective. The framework's own step around the network, of --reducer native alone."""
    options = resolve_reducer(config.reducer, config.reducer_option)
    if not isinstance(options, NativeOptions):
        return None
    return fused_class(config.backend_label)(parts[0].model, links.replicas, options)
