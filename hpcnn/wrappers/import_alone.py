"""What frameworks are imported under: without the guests that they would import for uses of their own, and without a
home directory that Keras (TensorFlow has one inside, too) would read settings from and write them to; and without
Python's garbage collector."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

NO_KERAS_HOME = {"KERAS_HOME": os.path.join(os.devnull, "keras")}
"""A folder that is not there and cannot be made; Keras takes it as it comes."""


@contextlib.contextmanager
def during(mapping: MutableMapping[str, Any], own: dict[str, Any]) -> Iterator[None]:
    """These values in the mapping, and then what was there before; other keys are left alone."""
    before = {key: mapping.get(key) for key in own}
    mapping.update(own)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                mapping.pop(key, None)
            else:
                mapping[key] = value


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """An import makes objects that stay: to look for garbage among them takes 0.1 s of torch's, 0.3 of TensorFlow's."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def without(names: Iterable[str]) -> contextlib.AbstractContextManager[None]:
    """An import of these fails as if they were not installed; those that are imported already stay."""
    barred: dict[str, Any] = {name: None for name in names if name not in sys.modules}
    return during(sys.modules, barred)
