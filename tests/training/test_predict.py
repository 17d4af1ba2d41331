"""Classes of a CSV from a checkpoint: those of the run itself, whatever the layout of the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.training.results import manifest, table
from tests.training.worlds import World, refusal


@pytest.fixture(scope="module")
def trained(world: World, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run that tested test.csv."""
    out = tmp_path_factory.mktemp("predict")
    world.train(
        "--train", files / "train.csv", "--test", files / "test.csv", "--network", files / "little.toml",
        "--epochs", 2, "--global-batch", 31, "--normalise", "standard", "--out", out, "--run-id", "trained",
    )  # fmt: skip
    return out / "trained"


Row = Sequence[str]
Layout = Callable[[Row], Row]


def rewritten(source: Path, target: Path, layout: Layout, *, header: bool) -> Path:
    """`source` (header, label last) with its columns laid out otherwise, with its header or without."""
    lines = source.read_text(encoding="utf-8").splitlines()
    rows = [layout(line.split(",")) for line in lines[not header :]]
    target.write_text("\n".join(map(",".join, rows)) + "\n", encoding="utf-8")
    return target


def last(row: Row) -> Row:
    return row


def first(row: Row) -> Row:
    return [row[-1], *row[:-1]]


def without(row: Row) -> Row:
    return row[:-1]


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("layout", [first, last, without])
def test_predictions_of_any_layout_are_those_of_the_run(
    world: World, files: Path, trained: Path, tmp_path: Path, layout: Layout, header: bool
) -> None:
    data = rewritten(files / "test.csv", tmp_path / "rows.csv", layout, header=header)
    found = tmp_path / "found.csv"
    # Without names, the first and the last column could both be labels: the flag says which is.
    flags = [] if header or layout is without else ["--label-column", layout.__name__]
    outcome = world.hpcnn("predict", trained, "--data", data, "--out", found, *flags)
    assert outcome.status == 0, outcome.stderr
    assert found.read_bytes() == (trained / "predictions.csv").read_bytes()
    figures = manifest(trained)["test"]
    words = f"61 rows, loss {figures['loss']:.4f}, accuracy {figures['accuracy']:.2%}\n" if layout != without else ""
    assert outcome.stdout == f"{words}predictions: {found}\n"


def test_predictions_are_numbered_from_1_and_name_known_classes(trained: Path) -> None:
    rows = table(trained / "predictions.csv")
    assert [row["ImageId"] for row in rows] == [str(number) for number in range(1, 62)]
    assert {row["Label"] for row in rows} <= set(map(str, range(10)))
    assert (trained / "predictions.csv").read_text().splitlines()[0] == "ImageId,Label"


def test_labels_may_be_ignored_only_where_a_column_is_none_of_the_pixels(
    world: World, files: Path, trained: Path, tmp_path: Path
) -> None:
    flags = ["--out", tmp_path / "found.csv", "--label-column", "none"]
    words = refusal(world.hpcnn("predict", trained, "--data", files / "test.csv", *flags), tmp_path)
    assert "785 features a row, but the input shape 1x28x28 needs 784" in words
    data = rewritten(files / "test.csv", tmp_path / "rows.csv", without, header=False)
    assert world.hpcnn("predict", trained, "--data", data, *flags).status == 0
    assert (tmp_path / "found.csv").read_bytes() == (trained / "predictions.csv").read_bytes()


def test_a_checkpoint_alone_is_enough(world: World, files: Path, trained: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.h5"
    moved.write_bytes((trained / "checkpoint.h5").read_bytes())
    outcome = world.hpcnn("predict", moved, "--data", files / "test.csv", "--out", tmp_path / "found.csv")
    assert outcome.status == 0, outcome.stderr
    assert (tmp_path / "found.csv").read_bytes() == (trained / "predictions.csv").read_bytes()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("1,2,3\n4,5,6\n", "3 columns, but the network takes 784 features, with or without a label"),
        (",".join(["0"] * 786) + "\n", "786 columns, but the network takes 784 features, with or without a label"),
        (",".join(["0"] * 783 + ["x"]) + "\n", "line 1, column 784: 'x' is no number"),
        ("", "is empty"),
        (",".join(["0"] * 784 + ["10"]) + "\n", "label '10' is out of range for the 10 classes"),
    ],
)
def test_a_file_that_does_not_fit_the_network_is_refused_and_nothing_is_written(
    world: World, trained: Path, tmp_path: Path, content: str, words: str
) -> None:
    data, found = tmp_path / "rows.csv", tmp_path / "out" / "found.csv"
    found.parent.mkdir()
    data.write_text(content, encoding="utf-8")
    flags = ["--label-column", "last"] if "10\n" in content else []
    outcome = world.hpcnn("predict", trained, "--data", data, "--out", found, *flags)
    assert words in refusal(outcome, found.parent)


def test_a_place_that_cannot_be_written_is_refused(world: World, files: Path, trained: Path, tmp_path: Path) -> None:
    data = files / "test.csv"
    gone = refusal(world.hpcnn("predict", trained, "--data", data, "--out", tmp_path / "gone" / "found.csv"), tmp_path)
    assert f"the folder {tmp_path / 'gone'} does not exist" in gone
    folder = refusal(world.hpcnn("predict", trained, "--data", data, "--out", tmp_path), tmp_path)
    assert f"{tmp_path}: cannot be written" in folder


def test_a_missing_file_or_run_and_an_unknown_backend_are_refused(
    world: World, files: Path, trained: Path, tmp_path: Path
) -> None:
    data, out = ["--data", files / "test.csv"], ["--out", tmp_path / "found.csv"]
    nowhere = tmp_path / "nowhere"
    assert f"{nowhere}: no such file" in refusal(world.hpcnn("predict", trained, "--data", nowhere, *out), tmp_path)
    assert f"{nowhere}: no checkpoint" in refusal(world.hpcnn("predict", nowhere, *data, *out), tmp_path)
    unknown = refusal(world.hpcnn("predict", trained, *data, *out, "--backend", "abacus"), tmp_path)
    assert "--backend 'abacus' is unknown: choose from torch" in unknown
