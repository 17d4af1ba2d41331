"""Every backend of the environment that runs as a test's argument."""

from __future__ import annotations

import dataclasses
import os

import pytest

from hpcnn.backend_options import OPTIONS, KerasOptions, backend_label
from hpcnn.wrappers.registry import BACKENDS, find_backend


def _keras_options_over(keras_backend: str) -> type[KerasOptions]:
    item = next(item for item in dataclasses.fields(KerasOptions) if item.name == "backend")
    own = dataclasses.field(default=keras_backend, metadata=item.metadata)
    return dataclasses.make_dataclass(
        "KerasOptionsOver", [("backend", "str", own)], bases=(KerasOptions,), frozen=True, kw_only=True
    )


KERAS_BACKEND = os.environ.get("HPCNN_TEST_KERAS_BACKEND") or next(
    (over for over in ("tensorflow", "theano") if not find_backend("keras", {"backend": over}).missing), "tensorflow"
)
"""What Keras computes with where a test does not say: fixed for a process, so other ones run in their own."""
if KerasOptions.backend != KERAS_BACKEND:
    OPTIONS["keras"] = _keras_options_over(KERAS_BACKEND)

SIMULATED = "simulated"
"""Computes nothing, so nothing that others compute is asked of it."""
INSTALLED = tuple(name for name in BACKENDS if name != SIMULATED and not find_backend(name, {}).missing)
"""What this environment serves: the modern one and the classic one have tests of their own that none is missing."""

EVERY_BACKEND = pytest.mark.parametrize("backend", INSTALLED)
OTHER_BACKENDS = pytest.mark.parametrize("backend", [name for name in INSTALLED if name != "torch"])
"""For what one backend, torch, has been through in full already."""


def chosen(backend: str) -> dict[str, object]:
    """The settings of a run that choose this backend, in a process that has not imported this module."""
    return {"backend": backend, "backend_option": {"backend": KERAS_BACKEND} if backend == "keras" else {}}


def frameworks_of(backend: str) -> set[str]:
    """What a backend may import, and has to: itself, and for Keras what it computes with."""
    found = set(backend_label(backend, {"backend": KERAS_BACKEND}).split("_"))
    return found | {"theano"} if backend == "lasagne" else found
