"""The recipe classic: what it lacks is said before anything is made, and what it makes computes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.env.classic import in_classic, pinned, require_classic
from tests.env.conftest import SmallMachine

BACKENDS = ("lasagne", "theano", "keras-theano", "caffe")
APT = "apt-get install binutils cmake g++ make protobuf-compiler"
SHIM = "import sys, types; sys.modules['theano.tensor.signal.downsample'] = types.ModuleType('downsample')"


@pytest.fixture
def older(machine: SmallMachine) -> SmallMachine:
    """A machine with Python, a compiler and all that Caffe is compiled with, whose pins are those of classic."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("these tests run in an environment with Python 3.11")
    machine.add_python("python3.11")
    for program in ("as", "cmake", "g++", "ld", "make", "protoc", "readlink", "sed"):
        if not (found := shutil.which(program)):
            pytest.skip(f"{program} is missing: {APT}")
        (machine.bin / program).symlink_to(found)
    machine.pins.write_text(pinned("theano", "numpy", "brocolli-caffe"))
    return machine


def hide(machine: SmallMachine, library: str) -> None:
    """The compiler links with everything else, as where one package isn't installed."""
    real = (machine.bin / "g++").readlink()
    machine.add_script("g++", f'case "$*" in *-l{library}\\ *) exit 1;; esac; exec {real} "$@"')


def refusal(machine: SmallMachine) -> str:
    line = machine.refusal("create.sh", "classic")
    assert not machine.root.exists()
    return line


def test_another_python_than_3_11_is_refused(machine) -> None:
    machine.pins.write_text(pinned("theano", "numpy"))
    machine.add_pretending_python("python3", 'sys.version_info = (3, 12, 1, "final", 0)')
    line = refusal(machine)
    assert "python3 is Python 3.12, and Theano runs on 3.11 alone: install Python 3.11 with venv" in line
    machine.add_pretending_python("python3.11", 'sys.version_info = (3, 9, 2, "final", 0)')
    assert "Python 3.9, hpcnn needs 3.11 or newer: install Python 3.11 with venv" in refusal(machine)


@pytest.mark.parametrize("numpy", ["numpy==1.24.0", "numpy==2.4.6", "NumPy==1.230.0", "no NumPy"])
def test_a_numpy_that_theano_cannot_use_is_refused(older, numpy: str) -> None:
    older.pins.write_text(pinned("theano") + numpy.replace("no NumPy", "") + "\n")
    assert f"{older.pins} pins {numpy}, but Theano 1.0.5 needs NumPy below 1.24: pin numpy==1.23.5" in refusal(older)


def test_a_missing_compiler_is_one_line(older) -> None:
    (older.bin / "g++").unlink()
    line = refusal(older)
    assert "there is no g++, with which Theano compiles each function" in line
    assert line.endswith("apt-get install g++)")
    older.pins.write_text(pinned("numpy", "brocolli-caffe"))
    assert refusal(older).endswith(
        "there is no g++: install or load what brings them (Debian, Ubuntu: sudo apt-get install g++)"
    )


def test_a_missing_openblas_is_one_line(older) -> None:
    hide(older, "openblas")
    assert refusal(older).endswith("apt-get install libopenblas-dev)")


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("boost_python3*", "libboost-python-dev"),
        ("boost_regex", "libboost-regex-dev"),
        ("protobuf", "libprotobuf-dev"),
        ("glog", "libgoogle-glog-dev"),
        ("hdf5_hl", "libhdf5-dev"),
    ],
)
def test_a_library_that_caffe_lacks_is_named_with_its_package(older, library: str, package: str) -> None:
    hide(older, library)
    line = refusal(older)
    assert "Caffe is compiled here, and there is no " in line
    assert line.endswith(f"(Debian, Ubuntu: sudo apt-get install {package})")


def test_all_that_caffe_lacks_is_one_line(older) -> None:
    for program in ("cmake", "protoc"):
        (older.bin / program).unlink()
    hide(older, "glog")
    assert refusal(older).endswith("apt-get install cmake protobuf-compiler libgoogle-glog-dev)")


def test_without_its_pin_caffe_needs_nothing(older) -> None:
    for program in ("cmake", "make", "protoc"):
        (older.bin / program).unlink()
    older.pins.write_text(pinned("theano", "numpy"))
    line = older.refusal("create.sh", "classic")
    assert "installing the packages failed" in line  # the small machine's store has no NumPy
    assert older.environments() == []


def test_its_backends_share_one_environment_beside_the_modern(machine) -> None:
    machine.add_python()
    assert "isn't made yet" in machine.refusal("with.sh", "lasagne", "true")
    status, out, err = machine.run("create.sh", "classic")
    assert (status, err) == (0, "")
    assert "export" not in out
    status, out, _ = machine.run("create.sh", "classic")
    assert (status, len(out.splitlines())) == (0, 1)
    for backend in BACKENDS:
        _, out, _ = machine.run("with.sh", backend, "printenv", "VIRTUAL_ENV")
        assert [Path(out.strip())] == machine.environments()
    assert machine.refusal("with.sh", "torch", "true").endswith("run  bash env/create.sh modern")


def test_the_classic_recipe_has_no_torch(machine) -> None:
    line = machine.refusal("with.sh", "torch", "true", HPCNN_RECIPE="classic")
    assert line == "env: HPCNN_RECIPE=classic has no torch: unset it; recipes: modern, modern-cuda, classic"


def test_theano_and_lasagne_compute_with_openblas() -> None:
    require_classic()
    program = f"""
{SHIM}
import os, tempfile
flags = "floatX=float32,device=cpu,blas.ldflags=-lopenblas,base_compiledir="
os.environ["THEANO_FLAGS"] = flags + tempfile.mkdtemp()
import lasagne, numpy, theano
x = theano.tensor.fmatrix()
product = theano.function([x], theano.tensor.dot(x, x))
assert any("Gemm" in str(node.op) or "Dot22" in str(node.op) for node in product.maker.fgraph.toposort())
print(product(numpy.full((2, 2), 3, "f")).tolist(), theano.__version__, lasagne.__version__, numpy.__version__)
"""
    done = in_classic("python", "-c", program)
    assert done.stdout.split("]] ") == ["[[18.0, 18.0], [18.0, 18.0", "1.0.5 0.1 1.23.5\n"], done.stderr


def test_caffe_computes_beside_h5py_and_links_to_no_folder_of_its_build(tmp_path: Path) -> None:
    environment = require_classic()
    program = """
import os, sys
os.environ["GLOG_minloglevel"] = "2"
import caffe, h5py, numpy
net = caffe.NetSpec()
net.x = caffe.layers.Input(shape={"dim": [2, 3]})
net.y = caffe.layers.ReLU(net.x)
with open("net.prototxt", "w") as file:
    file.write(str(net.to_proto()))
net = caffe.Net("net.prototxt", caffe.TRAIN)
net.blobs["x"].data[...] = numpy.arange(-3, 3).reshape(2, 3)
net.forward()
with h5py.File("result.h5", "w") as file:
    file["y"] = net.blobs["y"].data
print(net.blobs["y"].data.tolist(), caffe.__file__)
"""
    words = ["sh", "-c", f'cd "{tmp_path}" && exec python -c "$0"', program]
    done = in_classic(*words)
    assert done.returncode == 0, done.stderr
    values, _, path = done.stdout.strip().rpartition(" ")
    assert values == "[[0.0, 0.0, 0.0], [0.0, 1.0, 2.0]]"
    assert Path(path).is_relative_to(environment)
    libraries = subprocess.run(
        ["readelf", "--dynamic", str(Path(path).with_name("_caffe.so"))], capture_output=True, text=True, check=True
    ).stdout
    assert "libopenblas" in libraries
    assert "RUNPATH" not in libraries
    assert "RPATH" not in libraries


def test_keras_knows_theano() -> None:
    require_classic()
    program = """
import collections, collections.abc, os, tempfile
vars(collections).update({name: getattr(collections.abc, name) for name in collections.abc.__all__})
os.environ.update(KERAS_BACKEND="theano", KERAS_HOME=tempfile.mkdtemp())
os.environ["THEANO_FLAGS"] = "device=cpu,blas.ldflags=-lopenblas,base_compiledir=" + tempfile.mkdtemp()
import keras
print(keras.__version__, keras.backend.backend())
"""
    done = in_classic("python", "-c", program)
    assert done.stdout == "2.3.1 theano\n", done.stderr


def test_nothing_newer_is_in_it() -> None:
    """The unit tests that run in it would otherwise prove less."""
    require_classic()
    find = "import importlib.util as u; print([n for n in ('torch', 'tensorflow', 'jax') if u.find_spec(n)])"
    assert in_classic("python", "-c", find).stdout == "[]\n"
