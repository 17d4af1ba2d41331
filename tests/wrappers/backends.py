"""Every registered backend as a test's argument; one that is not installed in this environment is skipped by name."""

from __future__ import annotations

import dataclasses
import os

import pytest

from hpcnn.backend_options import OPTIONS, KerasOptions, backend_label
from hpcnn.wrappers.registry import BACKENDS


def _parameter(name: str) -> object:
    missing = ", ".join(BACKENDS[name].missing())
    return pytest.param(name, marks=pytest.mark.skipif(bool(missing), reason=f"{missing} is not installed"))


EVERY_BACKEND = pytest.mark.parametrize("backend", [_parameter(name) for name in BACKENDS])
OTHER_BACKENDS = pytest.mark.parametrize("backend", [_parameter(name) for name in BACKENDS if name != "torch"])
"""For what one backend, torch, has been through in full already."""


def frameworks_of(backend: str) -> set[str]:
    """What a backend may import, and has to: itself, and for Keras what it computes with."""
    return set(backend_label(backend, {}).split("_"))


def _keras_options_over(keras_backend: str) -> type[KerasOptions]:
    item = next(item for item in dataclasses.fields(KerasOptions) if item.name == "backend")
    own = dataclasses.field(default=keras_backend, metadata=item.metadata)
    return dataclasses.make_dataclass(
        "KerasOptionsOver", [("backend", "str", own)], bases=(KerasOptions,), frozen=True, kw_only=True
    )


KERAS_BACKEND = os.environ.get("HPCNN_TEST_KERAS_BACKEND")
"""What Keras computes with where a test does not say: fixed for a process, so other ones run in their own."""
if KERAS_BACKEND:
    OPTIONS["keras"] = _keras_options_over(KERAS_BACKEND)
