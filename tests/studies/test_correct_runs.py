"""Runs that are right are never called different, however they share the work, add and cut the network."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hpcnn.studies.compare import compare
from hpcnn.studies.reading import read_run
from tests.studies.trained import trained, write_files

SEEDS = range(1, 11)
FAST = {"optimizer": "adam", "learning_rate": 0.02, "epochs": 3}
"""So fast that runs part from each other."""
LAYOUTS: list[tuple[int, dict[str, Any]]] = [
    (2, {}),
    (1, {"micro_batches": 3}),
    (3, {"reducer": "plain"}),
    (4, {"micro_batches": 2}),
    (2, {"strategy": "pipeline", "micro_batches": 3}),
    (2, {"reducer": "native"}),
    (4, {"strategy": "hybrid", "grid": "dp=2,pp=2", "micro_batches": 2, "schedule": "gpipe"}),
    (3, {"reducer_option": {"algorithm": "flat"}, "logical_shards": 13}),
    (2, {"strategy": "pipeline", "schedule": "zero-bubble", "micro_batches": 2}),
    (3, {"strategy": "pipeline", "schedule": "layer-by-layer"}),
    (2, {"reducer_option": {"progress": "none", "segments": 3}}),
    (4, {"strategy": "hybrid", "grid": "dp=2,pp=2", "schedule": "interleaved", "micro_batches": 2}),
    (3, {"validation_fraction": 0.1, "normalise": "standard"}),
]
EVERY_CASE = pytest.mark.parametrize(
    ("seed", "layout"),
    [
        pytest.param(seed, layout, marks=[pytest.mark.full] * ((layout - seed) % 10 != 0))
        for seed in SEEDS
        for layout in range(len(LAYOUTS))
    ],
)
OF_THE_MATHEMATICS = ("validation_fraction", "normalise")
"""Settings of a layout that its baseline has too."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    files = write_files(tmp_path_factory.mktemp("runs"))

    @cache
    def run(seed: int, ranks: int, settings: tuple[tuple[str, Any], ...]) -> Path:
        (path,) = trained(
            ranks, [{**files, "backend": "torch", "seed": seed, **(FAST if seed % 2 else {}), **dict(settings)}]
        )
        return path

    return lambda seed, ranks, settings: run(seed, ranks, _Frozen(settings.items()))


class _Frozen(tuple[tuple[str, Any], ...]):
    """Settings that may hold a table of switches, as what they were trained with is known by."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(self))


@pytest.mark.needs("torch")
@EVERY_CASE
def test_a_right_run_is_never_called_different(run: Callable[..., Path], seed: int, layout: int) -> None:
    ranks, settings = LAYOUTS[layout]
    baseline = run(seed, 1, {name: value for name, value in settings.items() if name in OF_THE_MATHEMATICS})
    found = compare(read_run(baseline), read_run(run(seed, ranks, settings)))
    assert (found.verdict, found.causes) == ("float noise", ()) or found.verdict == "same", found.reasons
    assert found.run.rows
    assert len(found.run.replicas) == ranks * found.run.config["epochs"]
