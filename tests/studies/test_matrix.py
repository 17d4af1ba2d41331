"""From a study file to its cells: all combinations once, keys that stay, an order that favours no cell."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ConfigError
from hpcnn.studies.cells import Cell
from hpcnn.studies.matrix import config_of, expand, interleaved
from hpcnn.studies.study_file import Slurm, Study

DIMENSIONS: dict[str, list[Any]] = {
    "backend": ["torch", "tensorflow", "keras-jax", "keras", "caffe"],
    "strategy": ["single", "data", "pipeline"],
    "reducer": ["mpi", "plain", "horovod"],
    "ranks": [1, 2, 3, 8],
    "global_batch": [10, 64, 1000],
    "micro_batches": [1, 4],
    "threads": [1, 2],
    "learning_rate": [0.1, 1e-3],
    "reducer_option": [{}, {"wire": "bfloat16"}],
}
BLOCKS = st.fixed_dictionaries(
    {"ranks": st.lists(st.sampled_from(DIMENSIONS["ranks"]), min_size=1, unique=True)},
    optional={
        name: st.lists(st.sampled_from(values), min_size=1, unique_by=json.dumps)
        for name, values in DIMENSIONS.items()
        if name != "ranks"
    },
)


def study(*blocks: dict[str, list[Any]], **given: Any) -> Study:
    tables = {"backend": {"torch": {"compile": False}}, "reducer": {}}
    usual = {"path": Path("a.toml"), "name": "a", "out": Path("a"), "run": {"epochs": 2}, "tables": tables}
    return Study(**{**usual, "blocks": [{"scaling": ["none"], **block} for block in blocks], "slurm": Slurm(), **given})


@given(BLOCKS, st.integers(1, 4))
def test_every_combination_is_a_cell_once_a_repeat(block: dict[str, list[Any]], repeats: int) -> None:
    cells = expand(study(block, repeats=repeats))
    combinations = 1
    for values in block.values():
        combinations *= len(values)
    assert len(cells) == repeats * combinations == len({cell.key for cell in cells})
    assert Counter(cell.group for cell in cells) == dict.fromkeys({cell.group for cell in cells}, repeats)
    for cell in cells:
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,200}", cell.key)
        assert cell.settings["epochs"] == 2
        assert f"np{cell.ranks}_" in cell.key
    found = {(cell.ranks, json.dumps(cell.settings, sort_keys=True)) for cell in cells}
    assert len(found) == combinations


@given(BLOCKS, BLOCKS, st.integers(1, 3), st.integers(0, 2))
def test_a_matrix_that_grows_keeps_the_keys_of_its_cells(
    block: dict[str, list[Any]], larger: dict[str, list[Any]], repeats: int, more: int
) -> None:
    """Along the dimensions that both have; what a new one adds to a cell makes another cell of it."""
    grown = {
        name: list(
            {json.dumps(value): value for value in (*block[name], *larger.get(name, ()))}.values()
        )
        for name in block
    }  # fmt: skip
    before = {cell.key: cell.settings for cell in expand(study(block, repeats=repeats))}
    after = {cell.key: cell.settings for cell in expand(study(grown, repeats=repeats + more))}
    assert before.items() <= after.items()


@given(st.integers(1, 30), st.integers(1, 12))
def test_each_repeat_has_every_item_and_begins_elsewhere(items: int, repeats: int) -> None:
    found = list(interleaved(range(items), repeats))
    assert [repeat for repeat, _ in found] == [repeat for repeat in range(repeats) for _ in range(items)]
    turns = [[item for of, item in found if of == repeat] for repeat in range(repeats)]
    assert all(sorted(turn) == list(range(items)) for turn in turns)
    firsts = Counter(turn[0] for turn in turns)
    assert max(firsts.values()) <= -(-repeats // items)  # nobody is first more often than must be
    if repeats % items == 0:  # then each has been in each place alike
        places = Counter((item, place) for turn in turns for place, item in enumerate(turn))
        assert set(places.values()) == {repeats // items}


def test_a_drift_in_time_is_shared_by_all_cells() -> None:
    """A machine that slows down by one percent a run: means of cells differ by less than those of one after another."""
    items, repeats = 6, 6
    spent: dict[int, list[float]] = {item: [] for item in range(items)}
    for at, (_, item) in enumerate(interleaved(range(items), repeats)):
        spent[item].append(1 + 0.01 * at)
    means = [sum(some) / repeats for some in spent.values()]
    assert max(means) - min(means) == pytest.approx(0.0, abs=1e-12)


def test_weak_scaling_gives_each_rank_its_batch_and_rows() -> None:
    block = {"scaling": ["weak"], "ranks": [1, 3], "batch_a_rank": [20], "rows_a_rank": [100]}
    one, three = expand(study(block))
    assert (one.settings["global_batch"], one.settings["rows"]) == (20, 100)
    assert (three.settings["global_batch"], three.settings["rows"]) == (60, 300)
    assert three.key.startswith("weak_torch_data_mpi_np3_b60_")


def test_the_same_cell_in_two_matrices_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a.toml: torch data .*, 1 rank, batch 50 is in two matrices"):
        expand(study({"ranks": [1, 2]}, {"ranks": [1]}))
    assert len(expand(study({"ranks": [1]}, {"ranks": [1], "scaling": ["strong"]}))) == 2


@pytest.mark.parametrize("default", ["tensorflow", "keras-theano"])
def test_the_default_backend_of_an_environment_changes_no_cell(default: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCNN_BACKEND", default)
    cells = expand(study({"ranks": [1]}, {"ranks": [1], "backend": ["keras"]}))
    assert [(cell.settings["backend"], cell.settings["keras_backend"]) for cell in cells] == [
        ("torch", None), ("keras", "tensorflow"),
    ]  # fmt: skip


def only(**values: Any) -> Cell:
    (cell,) = expand(study({"ranks": [2], **{name: [value] for name, value in values.items()}}))
    return cell


def test_switches_of_tables_and_of_the_matrix_meet_in_the_run() -> None:
    assert config_of(only()).backend_option == {"compile": False}
    assert config_of(only(backend="keras-jax")).backend_option == {"backend": "jax"}
    assert config_of(only(backend="keras", keras_backend="torch")).backend_option == {"backend": "torch"}
    assert config_of(only(backend_option={"compile": True})).backend_option == {"compile": True}
    assert config_of(only(reducer_option={"wire": "float16"})).reducer_option == {"wire": "float16"}
    assert config_of(only(strategy="pipeline", schedule="gpipe", micro_batches=4)).schedule == "gpipe"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"keras_backend": "jax"}, "keras_backend jax belongs to backend keras, not to torch"),
        ({"reducer": "native", "strategy": "pipeline"}, "--reducer native"),
        ({"schedule": "gpipe"}, "--schedule gpipe belongs to --strategy"),
        ({"epochs": -1}, "--epochs -1 is out of range"),
        ({"backend": 3}, "--backend takes a text, not 3"),
    ],
)
def test_what_cannot_run_is_a_cell_whose_settings_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(only(**values))
    assert words in str(caught.value)


def test_a_label_tells_what_differs() -> None:
    assert only().label == "torch data compile=False, 2 ranks, batch 50"
    cell = only(backend="keras-jax", strategy="hybrid", grid="dp=1,pp=2", schedule="gpipe", micro_batches=4)
    assert cell.label == "keras on jax hybrid dp=1,pp=2 gpipe, 2 ranks, batch 50, 4 micro-batches"
    assert only(backend="caffe", reducer="plain", global_batch=7).label == "caffe data plain, 2 ranks, batch 7"
