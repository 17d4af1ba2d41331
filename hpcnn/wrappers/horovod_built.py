"""What the Horovod that is installed here was compiled for: each of its bindings is for one version of a framework."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

REMEDY = "HPCNN_HOROVOD=yes bash env/create.sh compiles it for its environment, or says what that takes"
_KEYS = {"pytorch": "torch", "tensorflow": "tensorflow"}
"""Horovod's names of frameworks, and ours."""


@dataclass(frozen=True)
class HorovodBuild:
    """`frameworks`: for which versions it has a binding, as torch 2.13.0+cpu."""

    version: str
    frameworks: dict[str, str]

    def __str__(self) -> str:
        bindings = ", ".join(f"{name} {version}" for name, version in self.frameworks.items())
        return f"horovod {self.version} for {bindings or 'no framework'}"


def find_horovod() -> HorovodBuild | None:
    """None where it isn't installed. Imports nothing."""
    spec = importlib.util.find_spec("horovod")
    if spec is None or not spec.submodule_search_locations:
        return None
    try:
        version = importlib.metadata.version("horovod")
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    try:
        text = Path(spec.submodule_search_locations[0], "metadata.json").read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError):
        found = {}
    return HorovodBuild(version, {_KEYS[key]: str(found[key]) for key in _KEYS if key in found})
