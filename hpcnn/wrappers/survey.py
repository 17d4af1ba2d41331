"""What `hpcnn backends` says: for each backend ready or what is missing, what brings it, and its switches; and those of
what adds gradients across ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
from collections.abc import Iterator, Mapping
from typing import Any

from hpcnn.backend_options import OPTIONS
from hpcnn.reducer_options import TABLES
from hpcnn.wrappers.horovod_built import REMEDY, find_horovod
from hpcnn.wrappers.registry import Backend, find_backend, served_by

NAME_WIDTH = 32


def backend_lines() -> Iterator[str]:
    """Lines for people. Nothing is imported: packages are looked for, and their versions read, where they lie."""
    for name, options in OPTIONS.items():
        yield from map(_state, served_by(name))
        yield f"    [backend.{name}]"
        yield from map(_switch, dataclasses.fields(options))
    for name, table in TABLES.items():
        yield f"    {f'[reducer.{name}]':<{NAME_WIDTH}}{_reducer_state(name) or table.__doc__}"
        yield from map(_switch, dataclasses.fields(table))


def _reducer_state(name: str) -> str:
    """Of the one that an environment may be without."""
    if name != "horovod":
        return ""
    built = find_horovod()
    return f"missing: {REMEDY}" if built is None else f"ready ({built})"


def _state(backend: Backend) -> str:
    title = f"{backend.word:<14}"
    if missing := backend.missing:
        return f"{title}missing {', '.join(missing)}: bash env/create.sh {backend.recipe}, then {backend.start}"
    return f"{title}ready ({_versions(backend) or 'computes nothing, needs nothing'})"


def _versions(backend: Backend) -> str:
    """Of its packages, and for Keras 3 of all that it can compute with."""
    packages = list(backend.requires)
    if backend.word == "keras":
        packages += [name for name in ("torch", "jax") if not find_backend("keras", {"backend": name}).missing]
    return ", ".join(f"{package} {_version(package)}" for package in packages)


def _version(package: str) -> str:
    """Of an importable package; its distribution may have another name (tensorflow-cpu)."""
    for name in _distributions().get(package, [package]):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "compiled here"  # Caffe


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Distributions by importable package; to find them all takes a while."""
    return importlib.metadata.packages_distributions()


def _switch(item: dataclasses.Field[Any]) -> str:
    """`name = default`, commented out where there is none, and what it does."""
    choices = item.metadata["choices"]
    known = f" ({', '.join(choices)})" if choices else ""
    line = f"# {item.name} =" if item.default is None else f"{item.name} = {_toml(item.default)}"
    return f"    {line:<{NAME_WIDTH}}{item.metadata['help']}{known}"


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
