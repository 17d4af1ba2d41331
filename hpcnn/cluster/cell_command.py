"""The command of one cell: its backend's environment, a launcher where there are ranks to launch, `hpcnn train`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcnn.cluster.environments import environment_obstacle, in_environment
from hpcnn.cluster.launch import promised_size
from hpcnn.config import OPTION_FIELDS
from hpcnn.errors import HpcnnError, LaunchError, NotInstalledError
from hpcnn.studies.cells import Cell
from hpcnn.studies.matrix import config_of
from hpcnn.wrappers.registry import Backend, find_backend

HERE = "hpcnn"
"""The program, in an environment of env/with.sh."""


def cores_here() -> tuple[int, int]:
    """Processors that this process may use, and the cores that they are: Open MPI counts those as slots."""
    usable = os.sched_getaffinity(0)
    siblings = set()
    for number in usable:
        topology = Path(f"/sys/devices/system/cpu/cpu{number}/topology")
        try:
            siblings.add(((topology / "physical_package_id").read_text(), (topology / "core_id").read_text()))
        except OSError:
            return len(usable), len(usable)
    return len(usable), len(siblings)


def obstacle(cell: Cell, oversubscribe: bool, environ: Mapping[str, str]) -> str:
    """Why a cell cannot run here, or "", as far as can be told without starting it."""
    try:
        config = config_of(cell)
        environment_of(find_backend(config.backend, config.backend_option))
    except HpcnnError as error:
        return str(error)
    needed, here = cell.ranks * int(cell.settings["threads"]), cores_here()[0]
    if needed <= here or oversubscribe or "SLURM_JOB_ID" in environ:
        return ""
    return (
        f"{cell.ranks} ranks x {cell.settings['threads']} threads need {needed} cores, {here} are here: say "
        "oversubscribe = true, or give it to a cluster with `hpcnn study submit`"
    )


def environment_of(backend: Backend) -> list[str]:
    """What a command of the backend begins with; nothing where only this environment has it.

    Raises NotInstalledError where none has. What needs no framework (simulated) runs where we are."""
    word = backend.word if backend.requires else (os.environ.get("HPCNN_BACKEND") or "torch")
    words = environment_obstacle(word)
    if not words:
        return in_environment(word)
    if backend.missing:
        raise NotInstalledError(f"{backend.flags}: {words}", backend.word)
    return []


def cell_command(cell: Cell, run_file: Path, out: Path, environ: Mapping[str, str]) -> list[str]:
    """One rank is started directly, several by a launcher. Raises NotInstalledError, LaunchError."""
    config = config_of(cell)
    start = environment_of(find_backend(config.backend, config.backend_option))
    program = [HERE] if start else [sys.executable, "-m", "hpcnn"]
    train = [*program, "train", str(run_file), "--out", str(out), "--no-progress"]
    promise = promised_size(environ)
    direct = cell.ranks == 1 and (promise is None or promise[0] == 1)
    return [*start, *([] if direct else launcher(cell, environ)), *train]


def launcher(cell: Cell, environ: Mapping[str, str]) -> list[str]:
    """mpirun, or what HPCNN_LAUNCHER says in a job. Raises LaunchError where it is unknown."""
    name, threads = environ.get("HPCNN_LAUNCHER") or "mpirun", int(cell.settings["threads"])
    in_job = "SLURM_JOB_ID" in environ
    if name == "srun" and in_job:
        plugin = environ.get("HPCNN_SRUN_MPI") or "pmix"
        ranks = ["--ntasks", str(cell.ranks), "--cpus-per-task", str(threads)]
        return ["srun", f"--mpi={plugin}", "--kill-on-bad-exit=1", *ranks]
    if name not in ("mpirun", "srun"):
        raise LaunchError(f"HPCNN_LAUNCHER={name} is unknown; known: mpirun (the default), srun")
    # unbound: Open MPI would bind a rank to one core, and its threads would share that core
    words = ["mpirun", "--bind-to", "none", "-np", str(cell.ranks)]
    processors, cores = cores_here()
    if not in_job and cell.ranks > cores:
        words.append("--oversubscribe")
    if not in_job and cell.ranks * threads > processors:
        words += ["--mca", "mpi_yield_when_idle", "1"]
    return words


def cell_environment(cell: Cell, environ: Mapping[str, str]) -> dict[str, str]:
    """Threads are explicit, for libraries too that read no run file."""
    return {**environ, "OMP_NUM_THREADS": str(cell.settings["threads"])}


def run_file_text(cell: Cell, train: str | None) -> str:
    """The cell as a run file: `hpcnn train` makes the same run from it by hand. `train`: its rows, cut to size."""
    config = config_of(cell).to_dict()
    given = {
        name: config[name]
        for name, value in cell.settings.items()
        if value is not None and name in config and name not in OPTION_FIELDS
    }
    if train is not None:
        given["train"] = train
    lines = [f"# {cell.label}, repeat {cell.repeat}", "[run]", *_lines(given)]
    for kind, name in (("backend", config["backend"]), ("reducer", config["reducer"])):
        if switches := config[f"{kind}_option"]:
            lines += ["", f"[{kind}.{name}]", *_lines(switches)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any]) -> list[str]:
    """A JSON text, number or truth value is a TOML one; what is None is left out."""
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value is not None]
