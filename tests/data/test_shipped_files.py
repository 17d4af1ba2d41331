"""data/train.csv and data/test.csv are what data/README.md says, and make_csv.py makes such files."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

from hpcnn.data.dataset import load_dataset
from tests.support.mpi import REPOSITORY, run_session

FILES = {
    "train.csv": (
        6000,
        [592, 671, 581, 608, 623, 514, 608, 651, 551, 601],
        "f32deed3af30e57c5f4b685b21d21ccac7d9890861c6e4968c0e6dc209a039c2",
    ),
    "test.csv": (
        1000,
        [85, 126, 116, 107, 110, 87, 87, 99, 89, 94],
        "f0905248a5e18114ac1a6ce42f145fb3c8b57e91ba8aa81f8fdd583364ca3aea",
    ),
}


@pytest.mark.parametrize("name", list(FILES))
def test_a_shipped_file_has_its_rows_labels_and_checksum(name: str) -> None:
    rows, counts, checksum = FILES[name]
    path = REPOSITORY / "data" / name
    assert hashlib.sha256(path.read_bytes()).hexdigest() == checksum
    dataset = load_dataset(path)
    assert dataset.features.shape == (rows, 1, 28, 28)
    assert dataset.features.dtype == np.uint8
    assert dataset.format.describe() == "a header, 784 features, label last ('label')"
    assert dataset.labels is not None
    assert np.bincount(dataset.labels).tolist() == counts
    readme = (REPOSITORY / "data" / "README.md").read_text(encoding="utf-8")
    assert checksum in readme
    assert "CC BY-SA 3.0" in readme


def test_the_script_writes_the_first_digits_with_the_label_last(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    sizes = {"train": 6002, "test": 1001}
    digits = {f"x_{part}": generator.integers(0, 256, (size, 28, 28), np.uint8) for part, size in sizes.items()}
    labels = {f"y_{part}": np.arange(size, dtype=np.uint8) % 10 for part, size in sizes.items()}
    np.savez(tmp_path / "digits.npz", **digits, **labels)
    run = run_session([sys.executable, "data/make_csv.py", str(tmp_path / "digits.npz"), str(tmp_path)])
    assert (run.returncode, run.stderr) == (0, "")
    for part, rows in (("train", 6000), ("test", 1000)):
        dataset = load_dataset(tmp_path / f"{part}.csv")
        np.testing.assert_array_equal(dataset.features[:, 0], digits[f"x_{part}"][:rows])
        np.testing.assert_array_equal(dataset.labels, labels[f"y_{part}"][:rows])
    header = (tmp_path / "test.csv").read_text().splitlines()[0]
    assert header == ",".join([*(f"pixel{i}" for i in range(784)), "label"])


def test_the_script_says_how_it_is_used() -> None:
    run = run_session([sys.executable, "data/make_csv.py"])
    assert run.returncode == 2
    assert "usage: python data/make_csv.py MNIST.NPZ" in run.stderr
