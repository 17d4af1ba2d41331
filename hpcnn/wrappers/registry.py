"""Backends by name, imported only when asked for, so that using one imports no other."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcnn.backend_options import resolve_options
from hpcnn.errors import BackendError
from hpcnn.network.architecture import Segment
from hpcnn.network.native import Native
from hpcnn.wrappers.contract import Array, SegmentModel


@dataclass(frozen=True)
class OpenBackend:
    """A backend that is set up in this process: builds segments, and completes native layers."""

    segment_class: type[SegmentModel]
    options: Any

    def __call__(
        self, segment: Segment, weights: Array, gradient: Array, *, input_gradient: bool | None = None
    ) -> SegmentModel:
        return self.segment_class(segment, weights, gradient, input_gradient=input_gradient, options=self.options)

    def complete(self, layer: Native, input_shape: tuple[int, ...]) -> Native:
        """Of hpcnn.network.native.complete_natives."""
        return self.segment_class.complete_native(layer, input_shape)


@dataclass(frozen=True)
class Backend:
    """Where a wrapper lives, the packages without which it cannot work, and the environment that has them."""

    name: str
    module: str
    class_name: str
    requires: tuple[str, ...]
    recipe: str = "modern"

    def missing(self, options: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Required packages that are not installed here (found without importing them)."""
        required = list(self.requires)
        if self.name == "keras":
            required.append((options or {}).get("backend", "tensorflow"))
        return tuple(package for package in required if importlib.util.find_spec(package) is None)

    @property
    def remedy(self) -> str:
        """The command that brings what is missing, and the one that uses it."""
        return f"make its environment with `bash env/create.sh {self.recipe}`"


BACKENDS: dict[str, Backend] = {}


def register_backend(
    name: str, module: str, class_name: str, requires: tuple[str, ...], recipe: str = "modern"
) -> None:
    """Add a backend. Raises BackendError where the name is taken."""
    if name in BACKENDS:
        raise BackendError(f"backend {name!r} is registered already, by {BACKENDS[name].module}: choose another name")
    BACKENDS[name] = Backend(name, module, class_name, requires, recipe)


register_backend("torch", "hpcnn.wrappers.torch_wrapper", "TorchSegment", ("torch",))
register_backend("tensorflow", "hpcnn.wrappers.tensorflow_wrapper", "TensorflowSegment", ("tensorflow",))
register_backend("keras", "hpcnn.wrappers.keras_wrapper", "KerasSegment", ("keras",))


def check_backend(name: str, options: Mapping[str, Any] | None = None) -> Backend:
    """The entry of `name`. Raises BackendError, with the remedy, where it is unknown or not installed here."""
    if name not in BACKENDS:
        unknown = BackendError(f"--backend {name!r} is unknown: choose from {', '.join(BACKENDS)}")
        unknown.exit_status = 2  # as for every wrong flag
        raise unknown
    backend = BACKENDS[name]
    if missing := backend.missing(options):
        raise BackendError(
            f"--backend {name} needs {', '.join(missing)}, not installed in this environment: {backend.remedy} and "
            f"start with `bash env/with.sh {name} hpcnn ...`"
        )
    return backend


def get_segment_class(name: str, options: Mapping[str, Any] | None = None) -> type[SegmentModel]:
    """The wrapper class of backend `name`; imports it, but not yet what Keras computes with."""
    backend = check_backend(name, options)
    segment_class: type[SegmentModel] = getattr(importlib.import_module(backend.module), backend.class_name)
    return segment_class


def open_backend(name: str, options: Mapping[str, Any] | None = None, threads: int | None = None) -> OpenBackend:
    """The backend set up in this process with `options` (of hpcnn.backend_options; None: its defaults) and `threads`.

    Raises BackendError where it is unknown, not installed, or runs already in this process and otherwise.
    """
    resolved = resolve_options(name, options or {}) if name in BACKENDS else None
    segment_class = get_segment_class(name, options)
    segment_class.set_process_up(resolved, threads)
    return OpenBackend(segment_class, resolved)
