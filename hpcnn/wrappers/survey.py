"""What `hpcnn backends` says: for each backend ready or what is missing, what brings it, and its switches."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
from collections.abc import Iterator, Mapping
from typing import Any

from hpcnn.backend_options import OPTIONS, KerasOptions
from hpcnn.wrappers.registry import BACKENDS, Backend

NAME_WIDTH = 32


def backend_lines() -> Iterator[str]:
    """Lines for people. Nothing is imported: packages are looked for, and their versions read, where they lie."""
    for backend in BACKENDS.values():
        yield f"{backend.name:<12}{_state(backend)}"
        if backend.name in OPTIONS:
            yield f"    [backend.{backend.name}]"
            yield from map(_switch, dataclasses.fields(OPTIONS[backend.name]))


def _state(backend: Backend) -> str:
    if missing := backend.missing():
        return (
            f"missing {', '.join(missing)}: bash env/create.sh {backend.recipe}, then bash env/with.sh {backend.name}"
        )
    return f"ready ({_versions(backend)})"


def _versions(backend: Backend) -> str:
    """Of its packages, and for Keras of what it can compute with."""
    packages = list(backend.requires)
    if backend.name == "keras":
        below = next(item for item in dataclasses.fields(KerasOptions) if item.name == "backend").metadata["choices"]
        packages += [name for name in below if not backend.missing({"backend": name})]
    return ", ".join(f"{package} {_version(package)}" for package in packages)


def _version(package: str) -> str:
    """Of an importable package; its distribution may have another name (tensorflow-cpu)."""
    names = _distributions().get(package, [package])
    found = [importlib.metadata.version(name) for name in names]
    return found[0] if found else "?"


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
