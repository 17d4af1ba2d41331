"""Faults that `hpcnn train --inject` makes on real ranks are named by `hpcnn compare`, each as itself and as nothing
else. It is not told of them: every mark of them is removed first, or is another fault's."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hpcnn.cli import main
from hpcnn.config import FAULTS
from tests.studies.trained import trained, unmark, write_files
from tests.support.covering import covering

RANKS, SEEDS = (2, 3, 4), (1, 2, 3)
NAMES = {
    "sum-without-mean": "mean is missing: gradients are added across {ranks} ranks and not divided, in {run}",
    "mean-twice": "mean is taken twice: gradients added across {ranks} ranks are divided once more, in {run}",
    "rate-not-scaled": "learning rate is not scaled with the batch: it is 0.01 in step ",
    "same-rows": "ranks {all} train on the same rows, in {run}",
    "drifting-ranks": "ranks drift apart: after epoch 1 the weights of rank 1 are not those of rank 0, in {run}",
    "rank-left-out": "rank {last} is left out of the sum: ",
    "same-shuffle": "the shuffle repeats: epoch 1 deals its rows in later epochs again, in {run}",
    "shifted-labels": "labels are shifted by a row: ",
    "other-dropout": "dropout differs: 26 of 26 rows have other masks, that keep 100.0% of the units in {run}, 7",
    "other-normalisation": "normalisation differs: the same row has mean ",
}
Case = tuple[str, int, int]
CASES: list[Case] = list(product(FAULTS, RANKS, SEEDS))


HERE = {
    "torch": {CASES[place] for place in covering([(FAULTS.index(fault), *others) for fault, *others in CASES])},
    "tensorflow": {("sum-without-mean", 2, 1), ("rank-left-out", 2, 1), ("other-dropout", 2, 1)},
}
"""Each fault, each number of ranks and each seed; of another framework, one of each way in which faults are made."""
EVERY_CASE = pytest.mark.parametrize(
    ("backend", "fault", "ranks", "seed"),
    [
        pytest.param(
            backend, *case, marks=[pytest.mark.needs(backend)] + [pytest.mark.full] * (case not in here)
        )
        for backend, here in HERE.items()
        for case in CASES
    ],
)  # fmt: skip
Trained = Callable[[str, str | None, int, int], Path]
Compared = Callable[[Path, Path], tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_files(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def run(files: dict[str, Any]) -> Trained:
    """The folder of a run with a fault or without, no mark of it left; each is trained once."""

    @cache
    def run(backend: str, fault: str | None, ranks: int, seed: int) -> Path:
        name = f"{backend}{seed}on{ranks}" + ("" if fault is None else f"_{FAULTS.index(fault)}")
        (path,) = trained(ranks, [{**files, "backend": backend, "seed": seed, "inject": fault, "run_id": name}])
        if fault is not None:
            unmark(path, fault)
        return path

    return run


@pytest.fixture
def compared(capsys: pytest.CaptureFixture[str]) -> Compared:
    """Exit status and JSON of `hpcnn compare BASELINE RUN --json`."""

    def compared(baseline: Path, run: Path) -> tuple[int, dict[str, Any]]:
        status = main(["compare", str(baseline), str(run), "--json"])
        (found,) = json.loads(capsys.readouterr().out)["comparisons"]
        return status, found

    return compared


@EVERY_CASE
def test_an_injected_fault_is_named_as_itself_and_nothing_else(
    run: Trained, compared: Compared, backend: str, fault: str, ranks: int, seed: int
) -> None:
    faulty = run(backend, fault, ranks, seed)
    status, found = compared(run(backend, None, 1, seed), faulty)
    assert (status, found["verdict"]) == (1, "different")
    (cause,) = found["causes"]
    everyone = " and ".join(map(str, range(ranks)))
    assert cause.startswith(NAMES[fault].format(ranks=ranks, last=ranks - 1, all=everyone, run=faulty.name))
    assert found["reasons"]


HYBRID = {"strategy": "hybrid", "grid": "dp=2,pp=2", "micro_batches": 3}
OF_REPLICAS = {
    **NAMES,
    "sum-without-mean": "mean is missing: gradients are added across 2 replicas and not divided, in {run}",
    "mean-twice": "mean is taken twice: gradients added across 2 replicas are divided once more, in {run}",
    "same-rows": "ranks 0 and 2 train on the same rows, in {run}",
    "drifting-ranks": "ranks drift apart: after epoch 1 the weights of rank 2 are not those of rank 0, in {run}",
    "rank-left-out": "ranks 2 and 3 are left out of the sum: ",
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=[pytest.mark.full] * (fault not in ("same-rows", "rank-left-out"))) for fault in FAULTS],
)
def test_where_replicas_are_pipelines_the_fault_is_named_too(
    run: Trained, compared: Compared, files: dict[str, Any], fault: str
) -> None:
    (faulty,) = trained(4, [{**files, **HYBRID, "backend": "torch", "inject": fault, "run_id": f"hybrid_{fault}"}])
    (cause,) = compared(run("torch", None, 1, 1), faulty)[1]["causes"]
    assert cause.startswith(OF_REPLICAS[fault].format(run=faulty.name))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("mark", [None, "mean-twice"])
def test_a_mark_of_another_fault_or_of_one_that_was_not_made_changes_nothing(
    run: Trained, compared: Compared, tmp_path: Path, mark: str | None
) -> None:
    baseline, faulty, right = (run("torch", *case) for case in ((None, 1, 1), ("same-rows", 2, 1), (None, 2, 1)))
    for folder in (faulty, right):
        copy = tmp_path / folder.name
        copy.mkdir()
        for file in ("loss.csv", "timing.csv", "predictions.csv", "rows.csv", "replicas.csv"):
            (copy / file).write_bytes((folder / file).read_bytes())
        manifest = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        manifest["config"]["inject"] = mark
        (copy / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
        marked, bare = compared(baseline, copy)[1], compared(baseline, folder)[1]
        assert (marked["verdict"], marked["causes"]) == (bare["verdict"], bare["causes"])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_a_run_without_a_fault_is_float_noise_or_the_same(run: Trained, compared: Compared, ranks: int) -> None:
    status, found = compared(run("torch", None, 1, 1), run("torch", None, ranks, 1))
    assert (status, found["causes"]) == (0, [])
    assert found["verdict"] == ("same" if ranks == 1 else "float noise")
    assert found["figures"]["predictions"]["agreement"] >= 59 / 60


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("same-rows", "ranks 0 and 1 train on the same rows, in {baseline}"),
        ("same-shuffle", "the shuffle repeats: epoch 1 deals its rows in later epochs again, in {baseline}"),
        ("sum-without-mean", "mean is missing: gradients are added across 2 ranks and not divided, in {baseline}"),
    ],
)  # fmt: skip
def test_a_right_run_against_a_baseline_with_the_fault_blames_the_baseline(
    run: Trained, compared: Compared, fault: str, cause: str
) -> None:
    baseline = run("torch", fault, 2, 1)
    _, found = compared(baseline, run("torch", None, 1, 1))
    assert found["causes"] == [cause.format(baseline=baseline.name)]
