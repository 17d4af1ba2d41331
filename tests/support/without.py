"""`hpcnn` where some packages are not installed: as if this environment had been made without them.

Usage: without.py PACKAGE,... hpcnn's own arguments. Python's search of its path does not find them, and finds the rest.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from hpcnn import cli


class Finder:
    """Python's own, blind to some top-level names."""

    def __init__(self, hidden: set[str]) -> None:
        self._hidden = hidden

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] in self._hidden:
            return None
        return PathFinder.find_spec(name, path, target)

    find_distributions = staticmethod(PathFinder.find_distributions)


def main(hidden: set[str], arguments: list[str]) -> int:
    assert not hidden & set(sys.modules)
    sys.meta_path[:] = [Finder(hidden) if finder is PathFinder else finder for finder in sys.meta_path]
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main(set(sys.argv[1].split(",")), sys.argv[2:]))
