"""--mpi site on real MPIs, Debian's Open MPI 4 and MPICH: mpi4py is compiled, two ranks train, and in that MPI.

Offline, as on many a cluster: mpi4py and what compiles it come from a wheelhouse. Only mpi4py differs between MPIs,
so the environments hold nothing else, and look into the one that pytest runs in for torch and its like.
"""

from __future__ import annotations

import csv
import json
import sysconfig
from pathlib import Path

import pytest

from tests.env.conftest import CLONE
from tests.env.site import MPIRUN, MPIS, Site, load, require_mpis

LIBRARY = {"openmpi": ("libmpi.so.40", "Open MPI v4."), "mpich": ("libmpich.so.12", "MPICH Version:")}
OTHER = {"openmpi": "mpich", "mpich": "openmpi"}
PROMISE = {"openmpi": "OMPI_COMM_WORLD_SIZE", "mpich": "PMI_SIZE"}
SETTINGS = (
    "--network",
    "jobs/small_network.toml",
    "--train",
    "data/train.csv",
    "--global-batch",
    "500",
    "--threads",
    "1",
)
TRAIN = ("train", *SETTINGS)
MODERN = (CLONE / "env/constraints-modern.txt").read_text().splitlines()


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Site]:
    """Both MPIs, each with its environment; the two are made at the same time."""
    require_mpis()
    folder = tmp_path_factory.mktemp("site")
    pins = folder / "pins.txt"
    pins.write_text("\n".join(line for line in MODERN if line.startswith(("mpi4py==", "openmpi=="))) + "\n")
    found = {mpi: load(mpi, folder, folder / "root", pins) for mpi in MPIS}
    house = str(folder / "wheelhouse")
    status, _, err = found["openmpi"].run("bash", "env/create.sh", "--mpi", "site", "--download", house)
    assert (status, err) == (0, "")
    for site in found.values():
        site.variables |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    makers = [site.popen("bash", "env/create.sh", "--wheelhouse", house, "--mpi", "site") for site in found.values()]
    for site, maker in zip(found.values(), makers, strict=True):
        out, err = maker.communicate(timeout=600)
        assert (maker.returncode, err) == (0, "")
        assert f"compiling mpi4py==4.1.2 for {LIBRARY[site.mpi][1]}" in out
        assert out.splitlines()[-1].endswith(": export HPCNN_MPI=site")
        site.variables["HPCNN_MPI"] = "site"
    for made in (folder / "root/envs").glob("modern-*/lib/python*/site-packages"):
        (made / "modern.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mpi", MPIS)
def test_two_ranks_train_in_the_mpi_of_the_site(sites, tmp_path: Path, mpi: str) -> None:
    status, out, err = sites[mpi].ranks("hpcnn", *TRAIN, "--max-steps", "3", "--out", str(tmp_path), "--run-id", "run")
    assert status == 0, out + err
    facts = json.loads((tmp_path / "run/run.json").read_text())
    assert (facts["state"], facts["ranks"]) == ("completed", 2)
    name, words = LIBRARY[mpi]
    library = Path(facts["mpi"]["library"])
    assert library.is_relative_to("/usr/lib")
    assert library.name.startswith(name)
    assert facts["mpi"]["version"].startswith(words)

    with open(tmp_path / "run/timing.csv") as table:
        steps = {line["rank"]: int(line["count"]) for line in csv.DictReader(table) if line["phase"] == "forward"}
    assert steps.keys() == {"0", "1"}
    assert min(steps.values()) >= 3
    with open(tmp_path / "run/loss.csv") as table:
        assert [int(line["samples"]) for line in csv.DictReader(table)] == [500, 1000, 1500]


@pytest.mark.slow
@pytest.mark.parametrize("mpi", MPIS)
def test_the_launcher_of_another_mpi_is_refused_in_one_line(sites, tmp_path: Path, mpi: str) -> None:
    other = OTHER[mpi]
    launcher = (f"/usr/bin/mpirun.{other}", *MPIRUN[other][1:])
    status, _, err = sites[mpi].ranks("hpcnn", *TRAIN, "--out", str(tmp_path), launcher=launcher)
    assert status != 0
    (line,) = [line for line in err.splitlines() if line.startswith("hpcnn: ")]
    assert line.startswith(f"hpcnn: {PROMISE[other]} promises 2 processes, but MPI sees 1")
    assert "RuntimeWarning" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("mpi", MPIS)
def test_what_all_ranks_refuse_is_said_once_in_each_mpi(sites, tmp_path: Path, mpi: str) -> None:
    status, out, err = sites[mpi].ranks("hpcnn", "train", "--train", "nowhere.csv", "--out", str(tmp_path))
    assert status != 0
    assert out == ""
    assert [line for line in err.splitlines() if line.startswith("hpcnn: ")] == [
        "hpcnn: nowhere.csv: no such file; check the path (on every node)"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mpi", MPIS)
def test_a_rank_that_raises_ends_the_other_in_each_mpi(sites, tmp_path: Path, mpi: str) -> None:
    faulty = ["python", "-m", "tests.mpi.faulty_rank", "raise", "1", "1", *TRAIN]
    status, _, err = sites[mpi].ranks(*faulty, "--epochs", "1000", "--out", str(tmp_path))
    assert status != 0
    (line,) = [line for line in err.splitlines() if line.startswith("hpcnn: ")]
    assert "rank 1 " in line
    assert "RuntimeError" in line


@pytest.mark.slow
def test_another_environment_for_the_same_mpi_compiles_nothing(sites, tmp_path: Path) -> None:
    site = sites["openmpi"]
    pins = tmp_path / "pins.txt"
    known = Path(site.variables["HPCNN_CONSTRAINTS"])
    packaging = next(line for line in MODERN if line.startswith("packaging=="))
    pins.write_text(known.read_text() + packaging + "\n")
    again = Site("openmpi", site.variables | {"HPCNN_CONSTRAINTS": str(pins)})
    status, out, err = again.run("bash", "env/create.sh", "--wheelhouse", str(known.parent / "wheelhouse"))
    assert (status, err) == (0, "")
    assert "making" in out
    assert "compiling" not in out
    program = "from mpi4py import MPI; print(MPI.Get_library_version())"
    _, out, _ = again.run("bash", "env/with.sh", "torch", "python", "-c", program)
    assert out.startswith("Open MPI v4.")
