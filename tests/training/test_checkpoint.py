"""A checkpoint comes back to the bit, is written whole or not at all, and a damaged one is refused in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hpcnn.config import RunConfig
from hpcnn.data.normalise import Normalisation
from hpcnn.errors import CheckpointError
from hpcnn.network.network_file import read_network
from hpcnn.training.checkpoint import Checkpoint, checkpoint_path, load_checkpoint, save_checkpoint


@pytest.fixture
def checkpoint(files: Path) -> Checkpoint:
    architecture = read_network(files / "little.toml", (1, 28, 28), 10)
    generator = np.random.default_rng(0)

    def vector() -> Any:
        return generator.standard_normal(architecture.size).astype(np.float32)

    return Checkpoint(
        architecture=architecture,
        weights=vector(),
        optimizer={"first_moment": vector(), "second_moment": vector()},
        updates=17,
        normalisation=Normalisation(np.array([0.1], np.float32), np.array([1 / 3], np.float32)),
        label_names=tuple(map(str, range(10))),
        config=RunConfig(train="rows.csv", learning_rate=0.1, seed=2**63 - 1, base_batch=7),
        rows=211,
        logical_shards=13,
        epoch=2,
        epoch_step=3,
        step=17,
        samples=523,
    )


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Normalisation):
        return same(one.shift, other.shift) and same(one.scale, other.scale)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return bool(one == other) and type(one) is type(other)


@pytest.mark.parametrize("state", [("first_moment", "second_moment"), ("velocity",), ()])
def test_every_field_comes_back_to_the_bit(tmp_path: Path, checkpoint: Checkpoint, state: tuple[str, ...]) -> None:
    vectors = checkpoint.optimizer.values()
    checkpoint = dataclasses.replace(checkpoint, optimizer=dict(zip(state, vectors, strict=False)))
    save_checkpoint(tmp_path / "checkpoint.h5", checkpoint)
    for place in (tmp_path, tmp_path / "checkpoint.h5", str(tmp_path)):
        found = load_checkpoint(place)
        for item in dataclasses.fields(Checkpoint):
            assert same(getattr(found, item.name), getattr(checkpoint, item.name)), item.name


def test_values_that_are_no_numbers_come_back_as_they_are(tmp_path: Path, checkpoint: Checkpoint) -> None:
    checkpoint.weights[:3] = [np.nan, -np.inf, -0.0]
    save_checkpoint(tmp_path / "checkpoint.h5", checkpoint)
    assert same(load_checkpoint(tmp_path).weights, checkpoint.weights)


def test_any_program_can_read_it_by_the_names_of_layers(tmp_path: Path, checkpoint: Checkpoint) -> None:
    save_checkpoint(tmp_path / "checkpoint.h5", checkpoint)
    with h5py.File(tmp_path / "checkpoint.h5", "r") as file:
        kernel, *_, bias = checkpoint.architecture.parameters
        assert kernel.name == "conv1/kernel"
        assert file["weights/conv1/kernel"].shape == (4, 1, 5, 5)
        assert same(file["weights/conv1/kernel"][:], kernel.view(checkpoint.weights))
        assert same(file["optimizer/first_moment/dense1/bias"][:], bias.view(checkpoint.optimizer["first_moment"]))
        assert json.loads(file.attrs["label_names"])[9] == "9"


def test_a_runs_folder_stands_for_its_checkpoint(tmp_path: Path) -> None:
    assert checkpoint_path(tmp_path) == tmp_path / "checkpoint.h5"
    assert checkpoint_path(tmp_path / "other.h5") == tmp_path / "other.h5"


def refused(place: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(place)
    message = str(caught.value)
    assert message.startswith(str(place))
    assert len(message.splitlines()) == 1
    return message


def test_a_missing_checkpoint_says_what_leaves_one(tmp_path: Path) -> None:
    assert "no checkpoint; a run leaves one" in refused(tmp_path)
    assert "no checkpoint; a run leaves one" in refused(tmp_path / "nothing.h5")


@pytest.mark.parametrize(
    "content", [b"", b"epoch,step\n1,2\n", bytes(range(256)) * 40, b"\x89HDF\r\n\x1a\n" + b"\0" * 90]
)
def test_a_file_that_is_no_hdf5_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint.h5"
    path.write_bytes(content)
    assert "is not a checkpoint that this version reads" in refused(path)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, checkpoint: Checkpoint, share: float) -> None:
    path = tmp_path / "checkpoint.h5"
    save_checkpoint(path, checkpoint)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert "truncated file" in refused(path) or share == 0.01


def drop(name: str) -> Callable[[Any], None]:
    def damage(file: Any) -> None:
        del file[name]

    return damage


def drop_attribute(name: str) -> Callable[[Any], None]:
    def damage(file: Any) -> None:
        del file.attrs[name]

    return damage


def put(name: str, value: Any) -> Callable[[Any], None]:
    def damage(file: Any) -> None:
        del file[name]
        file[name] = value

    return damage


def put_attribute(name: str, value: Any) -> Callable[[Any], None]:
    def damage(file: Any) -> None:
        file.attrs[name] = value

    return damage


def group_instead(file: Any) -> None:
    del file["weights/conv1/kernel"]
    file.create_group("weights/conv1/kernel")


def edited(name: str, **changes: Any) -> Callable[[Any], None]:
    def damage(file: Any) -> None:
        file.attrs[name] = json.dumps({**json.loads(file.attrs[name]), **changes})

    return damage


DAMAGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "no format": (drop_attribute("hpcnn_format"), "hpcnn_format"),
    "a later format": (put_attribute("hpcnn_format", 2), "format 2, not 1"),
    "a format in words": (put_attribute("hpcnn_format", "one"), "one"),
    "no architecture": (drop_attribute("architecture"), "architecture"),
    "an architecture that is no JSON": (put_attribute("architecture", "{"), "Expecting"),
    "an architecture that is a list": (put_attribute("architecture", "[]"), ""),
    "an unknown layer": (edited("architecture", layers=[{"type": "attention"}]), "attention"),
    "an unknown setting": (edited("config", colour="red"), "colour"),
    "a setting out of range": (edited("config", epochs=-1), "--epochs -1"),
    "no weights": (drop("weights"), "weights"),
    "a missing kernel": (drop("weights/conv1/kernel"), "conv1/kernel"),
    "a missing moment": (drop("optimizer/first_moment/dense1/bias"), "dense1/bias"),
    "a kernel of another shape": (put("weights/conv1/kernel", np.zeros((4, 1, 3, 3), "f4")), "(4, 1, 3, 3)"),
    "a kernel of texts": (put("weights/conv1/kernel", np.full((4, 1, 5, 5), b"x")), ""),
    "a group for a kernel": (group_instead, ""),
    "a number for all weights": (put("weights", 3.0), ""),
    "no normalisation": (drop("normalisation"), "normalisation"),
    "a normalisation of other channels": (put("normalisation/shift", np.zeros(3, "f4")), "normalisation"),
    "too few label names": (put_attribute("label_names", '["a"]'), "label"),
    "a step in words": (put_attribute("step", "seventeen"), "seventeen"),
    "several steps": (put_attribute("step", [1, 2]), ""),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path: Path, checkpoint: Checkpoint, damage: str) -> None:
    path = tmp_path / "checkpoint.h5"
    save_checkpoint(path, checkpoint)
    change, words = DAMAGES[damage]
    with h5py.File(path, "r+") as file:
        change(file)
    message = refused(path)
    assert "is not a checkpoint that this version reads" in message
    assert words in message


def test_a_folder_that_is_gone_is_one_line_that_names_the_place(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "gone" / "checkpoint.h5"
    with pytest.raises(CheckpointError) as caught:
        save_checkpoint(path, checkpoint)
    message = str(caught.value)
    assert message.startswith(f"{path}: cannot be written: ")
    assert len(message.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The kernel refuses to let any file of this process grow beyond `size` bytes, as a full disk or a quota would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_one_line_and_the_old_file_stays_whole(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "checkpoint.h5"
    save_checkpoint(path, checkpoint)
    newer = dataclasses.replace(checkpoint, epoch=9)
    with largest_file(path.stat().st_size // 2), pytest.raises(CheckpointError) as caught:
        save_checkpoint(path, newer)
    assert str(caught.value).startswith(f"{path}: cannot be written: ")
    assert len(str(caught.value).splitlines()) == 1
    assert load_checkpoint(path).epoch == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint.h5"]
    save_checkpoint(path, newer)
    assert load_checkpoint(path).epoch == 9
