"""Ranks laid out as replicas x stages x tensor parts (dp x pp x tp), tensor parts next to each other.

Neighbouring ranks usually share a node, and tensor parts talk most, replicas least.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcnn.errors import ConfigError, LaunchError


@dataclass(frozen=True)
class Grid:
    """`dp` replicas of `pp` stages of `tp` parts. rank = (replica * pp + stage) * tp + part."""

    dp: int
    pp: int = 1
    tp: int = 1

    @property
    def size(self) -> int:
        return self.dp * self.pp * self.tp

    def place(self, rank: int) -> tuple[int, int, int]:
        """(replica, stage, part) of `rank`."""
        replica, rest = divmod(rank, self.pp * self.tp)
        stage, part = divmod(rest, self.tp)
        return replica, stage, part

    def __str__(self) -> str:
        return f"dp={self.dp},pp={self.pp},tp={self.tp}"


def read_grid(text: str) -> Grid:
    """The grid that `--grid` says. Raises ConfigError where the text is none."""
    parts: dict[str, int] = {}
    for item in text.split(","):
        name, _, number = item.strip().partition("=")
        if name not in ("dp", "pp", "tp") or not number.isdecimal() or int(number) < 1:
            raise ConfigError(f"--grid {text!r}: {item.strip()!r} is not dp=N, pp=N or tp=N with N of at least 1")
        if name in parts:
            raise ConfigError(f"--grid {text!r}: {name} is given twice, leave one out")
        parts[name] = int(number)
    return Grid(**{"dp": 1, **parts})


def parse_grid(text: str | None, size: int) -> Grid:
    """The grid of `--grid` for `size` ranks; None lays all ranks out as replicas.

    Raises ConfigError where the text is no grid, LaunchError where it is not of `size` ranks.
    """
    if text is None:
        return Grid(dp=size)
    grid = read_grid(text)
    if grid.size != size:
        raise LaunchError(f"--grid {grid} needs {grid.size} ranks, not {size}: use mpirun -np {grid.size}")
    return grid
