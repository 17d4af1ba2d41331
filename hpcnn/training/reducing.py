"""What adds the gradients of replicas, made as --reducer says: a reducer of messages, or the framework's own step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpcnn.config import RunConfig
from hpcnn.data.agree import attempt
from hpcnn.parallel.around import Shares
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.inject import injected_reducer
from hpcnn.parallel.parts import Links, Part
from hpcnn.parallel.reducers import make_reducer
from hpcnn.reducer_options import NativeOptions, resolve_reducer
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
    made = attempt(comm, lambda: make_reducer(config.reducer, links.replicas, options, world=comm, backend=label))
    return replace(links, reducer=Shares(injected_reducer(config.inject, made)))


def fused_step(config: RunConfig, links: Links, parts: Mapping[int, Part]) -> FusedStep | None:
    """Collective. The framework's own step around the network, of --reducer native alone."""
    options = resolve_reducer(config.reducer, config.reducer_option)
    if not isinstance(options, NativeOptions):
        return None
    return fused_class(config.backend_label)(parts[0].model, links.replicas, options)
