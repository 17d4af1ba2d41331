"""Keras, imported over the backend that was asked for, and with no settings but ours.

What Keras computes with is fixed as it is imported: one a process. It also reads, or writes, a settings file in the
home directory, which may be read-only and say anything; and it imports what it finds installed (JAX, whatever it
computes with; what draws and reads tables) for uses that are not ours, in twice the time.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from hpcnn.errors import BackendError
from hpcnn.wrappers.import_alone import NO_KERAS_HOME, during, without
from hpcnn.wrappers.tensorflow_import import import_tensorflow

_GUESTS = ("jax", "matplotlib", "pandas")


def refuse_another_keras(backend: str) -> None:
    """BackendError where Keras was imported in this process before, over another backend."""
    if (keras := sys.modules.get("keras")) is not None and (running := keras.config.backend()) != backend:
        raise BackendError(
            f"Keras runs in this process already, over {running}, not {backend}: start another process, or take "
            f"--keras-backend {running}"
        )


def import_keras(backend: str) -> Any:
    """The module; BackendError as above. What was not imported with it can be, afterwards."""
    refuse_another_keras(backend)
    if "keras" in sys.modules:
        return sys.modules["keras"]
    if backend == "tensorflow":
        import_tensorflow()
    own = {**NO_KERAS_HOME, "KERAS_BACKEND": backend, "KERAS_TORCH_DEVICE": "cpu"}
    with during(os.environ, own), without(name for name in _GUESTS if name != backend):
        return importlib.import_module("keras")
