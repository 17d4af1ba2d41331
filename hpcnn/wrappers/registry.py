"""Backends by name, imported only when asked for, so that using one imports no other."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcnn.backend_options import resolve_options
from hpcnn.errors import BackendError, NotInstalledError
from hpcnn.network.architecture import Segment
from hpcnn.network.native import Native
from hpcnn.wrappers.contract import Array, SegmentModel
from hpcnn.wrappers.import_alone import uncollected


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
    """Where a wrapper lives, the packages without which it cannot work (if any), and the environment that has them.

    `word` is env/with.sh's for it, `flags` are those of hpcnn that choose it. `cheap_cuts`: a network of several
    segments costs it no second compilation, no forward computed again, no call that does more at once.
    """

    name: str
    module: str
    class_name: str
    requires: tuple[str, ...]
    recipe: str = "modern"
    word: str = ""
    flags: str = ""
    cheap_cuts: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Required packages that are not installed here (found without importing them)."""
        return tuple(package for package in self.requires if importlib.util.find_spec(package) is None)

    @property
    def start(self) -> str:
        """The beginning of a command in its environment."""
        return f"bash env/with.sh {self.word}"

    @property
    def remedy(self) -> str:
        """The command that brings what is missing, and the one that uses it."""
        return f"make its environment with `bash env/create.sh {self.recipe}` and start with `{self.start} hpcnn ...`"


BACKENDS: dict[str, Backend] = {}
_KERAS: dict[str, Backend] = {}
"""Keras by what it computes with."""


def register_backend(
    name: str, module: str, class_name: str, requires: tuple[str, ...], recipe: str = "modern", cheap_cuts: bool = False
) -> None:
    """Add a backend. Raises BackendError where the name is taken."""
    if name in BACKENDS:
        raise BackendError(f"backend {name!r} is registered already, by {BACKENDS[name].module}: choose another name")
    BACKENDS[name] = Backend(
        name, module, class_name, requires, recipe, word=name, flags=f"--backend {name}", cheap_cuts=cheap_cuts
    )


def _register_keras(over: str, module: str, class_name: str, recipe: str, word: str) -> None:
    flags = f"--backend keras --keras-backend {over}"
    _KERAS[over] = Backend("keras", module, class_name, ("keras", over), recipe, word=word, flags=flags)


register_backend("torch", "hpcnn.wrappers.torch_wrapper", "TorchSegment", ("torch",), cheap_cuts=True)
register_backend("tensorflow", "hpcnn.wrappers.tensorflow_wrapper", "TensorflowSegment", ("tensorflow",))
for _over in ("tensorflow", "torch", "jax"):
    _register_keras(_over, "hpcnn.wrappers.keras_wrapper", "KerasSegment", "modern", "keras")
_register_keras("theano", "hpcnn.wrappers.keras_theano_wrapper", "KerasTheanoSegment", "classic", "keras-theano")
BACKENDS["keras"] = _KERAS["tensorflow"]
register_backend("lasagne", "hpcnn.wrappers.lasagne_wrapper", "LasagneSegment", ("lasagne", "theano"), "classic")
register_backend("caffe", "hpcnn.wrappers.caffe_wrapper", "CaffeSegment", ("caffe",), "classic")
register_backend("simulated", "hpcnn.wrappers.simulated_wrapper", "SimulatedSegment", (), "any", cheap_cuts=True)


def find_backend(name: str, options: Mapping[str, Any] | None = None) -> Backend:
    """The entry of `name`, of Keras over what `options` say. Raises BackendError where it is unknown."""
    if name not in BACKENDS:
        near = "; Keras on Theano is --backend keras --keras-backend theano" if "theano" in name else ""
        unknown = BackendError(f"--backend {name!r} is unknown: choose from {', '.join(BACKENDS)}{near}")
        unknown.exit_status = 2  # as for every wrong flag
        raise unknown
    return _KERAS[resolve_options(name, options or {}).backend] if name == "keras" else BACKENDS[name]


def served_by(name: str) -> list[Backend]:
    """The entries of a backend, one an environment that serves it."""
    found: dict[str, Backend] = {}
    for entry in _KERAS.values() if name == "keras" else [BACKENDS[name]]:
        found.setdefault(entry.word, entry)
    return list(found.values())


def check_backend(name: str, options: Mapping[str, Any] | None = None) -> Backend:
    """As `find_backend`. Raises NotInstalledError, with the remedy, where it is not installed here."""
    backend = find_backend(name, options)
    if missing := backend.missing:
        others = [over for over, other in _KERAS.items() if not other.missing] if name == "keras" else []
        here = f"; this one has Keras over {', '.join(others)} (--keras-backend)" if others else ""
        raise NotInstalledError(
            f"{backend.flags} needs {', '.join(missing)}, not installed in this environment: {backend.remedy}{here}",
            backend.word,
        )
    return backend


def get_segment_class(name: str, options: Mapping[str, Any] | None = None) -> type[SegmentModel]:
    """The wrapper class of backend `name`; imports it, but not yet what Keras computes with."""
    backend = check_backend(name, options)
    segment_class: type[SegmentModel] = getattr(importlib.import_module(backend.module), backend.class_name)
    return segment_class


def open_backend(
    name: str, options: Mapping[str, Any] | None = None, threads: int | None = None, device: str = "cpu"
) -> OpenBackend:
    """The backend set up in this process with `options` (of hpcnn.backend_options; None: its defaults) and `threads`.

    Raises BackendError where it is unknown, not installed, not for `device`, or runs already in this process and
    otherwise.
    """
    resolved = resolve_options(name, options or {}) if name in BACKENDS else None
    with uncollected():
        segment_class = get_segment_class(name, options)
        segment_class.set_process_up(resolved, threads)
        segment_class.use_device(device)
    return OpenBackend(segment_class, resolved)
