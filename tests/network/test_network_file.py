from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from hpcnn.errors import NetworkError
from hpcnn.network import Architecture, Conv2D, Dense, Flatten, Softmax, get_network, network_file

EXAMPLE = inspect.cleandoc(network_file.__doc__ or "").split("\n\n", maxsplit=1)[1]
HEAD = '[[layer]]\ntype = "flatten"\n[[layer]]\ntype = "dense"\nunits = "classes"\n[[layer]]\ntype = "softmax"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_of_the_documentation_is_a_network(tmp_path: Path) -> None:
    architecture = get_network(write(tmp_path, EXAMPLE), (1, 6, 6), 4)
    layers = (Conv2D(filters=8, kernel=3, padding="same"), Flatten(), Dense(units=4), Softmax())
    assert architecture == Architecture("small", (1, 6, 6), layers)


def test_a_file_without_a_header_has_the_name_of_the_file(tmp_path: Path) -> None:
    assert get_network(str(write(tmp_path, HEAD)), (1, 2, 2), 3).name == "mine"


def test_lists_in_a_file_are_pairs(tmp_path: Path) -> None:
    conv = '[[layer]]\ntype = "convolution"\nfilters = 2\nkernel = [3, 1]\npadding = [[1, 0], [0, 2]]\n'
    layer = get_network(write(tmp_path, conv + HEAD), (1, 6, 6), 4).layers[0]
    assert layer == Conv2D(filters=2, kernel=(3, 1), padding=((1, 0), (0, 2)), name="conv1")


def test_a_name_of_the_zoo_is_a_network() -> None:
    assert get_network("cnn2d_2layer_fullconnected_2layer", (1, 28, 28), 10).size == 3_274_634


def test_a_name_that_is_nowhere_lists_the_choices() -> None:
    with pytest.raises(
        NetworkError, match=r"network 'lenet' is unknown; choose one of cnn2d_.* or give a file NETWORK.tom"
    ):
        get_network("lenet", (1, 28, 28), 10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[layer]]\ntype = 'dense\n", "is not TOML ("),
        ("", "it has no layers; give each as a [[layer]] table with a type"),
        ("layer = 3\n", "it has no layers; give each as a [[layer]] table with a type"),
        ("layer = [3]\n", "it has no layers; give each as a [[layer]] table with a type"),
        ("[net]\n" + HEAD, "unknown table 'net'; known are network and layer"),
        ("[network]\ntitle = 'x'\n" + HEAD, "the table [network] holds only the key name"),
        ("network = 'x'\n" + HEAD, "the table [network] holds only the key name"),
        (
            "[[layer]]\ntype = 'conv'\n" + HEAD,
            "layer 1: layer type 'conv' is unknown; choose one of convolution, max_po",
        ),
        (HEAD.replace('"classes"', '"all"'), "layer 2: dense: units is 'all'; it must be a whole number, at least 1"),
        (
            "[[layer]]\ntype = 'batch_normalisation'\n" + HEAD,
            "layer 1: batch_normalisation: batch normalisation is refu",
        ),
        (
            "[[layer]]\ntype = 'max_pool'\nsize = 9\n" + HEAD,
            "max_pool 'pool1': its window of 9 x 9 is larger than its in",
        ),
        ("[[layer]]\ntype = 'relu'\n", "network 'mine': it ends in relu 'relu1'; it must end in a dense (or a n"),
    ],
)
def test_a_wrong_file_is_refused_with_file_and_layer(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(NetworkError) as caught:
        get_network(path, (1, 4, 4), 3)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused_by_path(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"none.toml: cannot be read .No such file or directory.; give the path"):
        get_network(tmp_path / "none.toml", (1, 4, 4), 3)


def test_a_network_of_another_number_of_classes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD.replace('"classes"', "12"))
    with pytest.raises(NetworkError, match=r"network 'mine' ends in 12 classes but the data have 10; write units = "):
        get_network(path, (1, 4, 4), 10)


def test_the_room_imports_neither_frameworks_nor_mpi_nor_pandas() -> None:
    unwanted = "{'torch', 'tensorflow', 'keras', 'theano', 'lasagne', 'caffe', 'mpi4py', 'pandas', 'h5py'}"
    code = f"import sys, hpcnn.network; print({unwanted} & set(sys.modules))"
    root = Path(network_file.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "set()\n"
