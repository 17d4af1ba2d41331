"""Reducers by name, each in a module of its own that is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from hpcnn.parallel.reducers.contract import STATISTICS, Message, Reducer
from hpcnn.reducer_options import resolve_reducer

REDUCERS = {
    "mpi": "mpi_reducer:MpiReducer",
    "plain": "plain:PlainReducer",
    "device": "device_reducer:DeviceReducer",
    "horovod": "horovod_reducer:HorovodReducer",
}
"""But for `native`, which is no reducer of messages: hpcnn.wrappers.fused. `device` is mpi with buffers = "device"."""

__all__ = ["REDUCERS", "STATISTICS", "Message", "Reducer", "make_reducer"]


def make_reducer(name: str, comm: Any, options: Any = None, *, world: Any, backend: str) -> Reducer:
    """The reducer of that name over `comm`; `options` are its defaults where there are none. Raises as Reducer does."""
    module, _, cls = REDUCERS[name].partition(":")
    made = getattr(importlib.import_module(f"{__name__}.{module}"), cls)
    reducer: Reducer = made(
        comm, resolve_reducer(name, {}) if options is None else options, world=world, backend=backend
    )
    return reducer
