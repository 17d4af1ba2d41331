"""Backends by name, imported only when asked for, so that using one imports no other."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass

from hpcnn.errors import BackendError
from hpcnn.wrappers.contract import SegmentModel


@dataclass(frozen=True)
class Backend:
    """Where a wrapper lives, and the packages without which it cannot work."""

    name: str
    module: str
    class_name: str
    requires: tuple[str, ...]

    def missing(self) -> tuple[str, ...]:
        """Required packages that are not installed here (found without importing them)."""
        return tuple(package for package in self.requires if importlib.util.find_spec(package) is None)


BACKENDS: dict[str, Backend] = {}


def register_backend(name: str, module: str, class_name: str, requires: tuple[str, ...]) -> None:
    """Add a backend. Raises BackendError where the name is taken."""
    if name in BACKENDS:
        raise BackendError(f"backend {name!r} is registered already, by {BACKENDS[name].module}: choose another name")
    BACKENDS[name] = Backend(name, module, class_name, requires)


register_backend("torch", "hpcnn.wrappers.torch_wrapper", "TorchSegment", ("torch",))


def check_backend(name: str) -> Backend:
    """The entry of `name`. Raises BackendError, with the remedy, where it is unknown or not installed here."""
    if name not in BACKENDS:
        raise BackendError(f"--backend {name!r} is unknown: choose from {', '.join(BACKENDS)}")
    backend = BACKENDS[name]
    if backend.missing():
        raise BackendError(
            f"--backend {name} needs {', '.join(backend.missing())}, not installed in this environment: "
            f"start with `bash env/with.sh {name} hpcnn ...`"
        )
    return backend


def get_segment_class(name: str) -> type[SegmentModel]:
    """The wrapper class of backend `name`; imports its framework."""
    backend = check_backend(name)
    segment_class: type[SegmentModel] = getattr(importlib.import_module(backend.module), backend.class_name)
    return segment_class
