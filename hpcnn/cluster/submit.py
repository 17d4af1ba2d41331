"""`hpcnn submit`: one of jobs/ to Slurm, its shape and its training told by flags that are checked before it waits."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcnn.cluster.slurm import Shape, sbatch
from hpcnn.config import OPTION_FIELDS, RunConfig
from hpcnn.config_sources import KERAS_BACKEND, check_setting
from hpcnn.errors import ConfigError

JOBS = Path("jobs")
SUFFIX = ".slurm"
OF_STUDIES = "study"
"""The one that `hpcnn study submit` submits."""


def submit_job(
    kind: str, shape: Shape, training: Sequence[str], options: Sequence[str] = (), *, dry_run: bool = False
) -> int:
    """Print the line of sbatch and run it. `kind`: a script, or the name of one in jobs/; `training`: arguments of its
    `hpcnn train`; `options`: other flags of sbatch. Raises ConfigError, LaunchError."""
    words = [*shape.flags(), *options, str(find_script(kind)), *training]
    print(shlex.join(["sbatch", *words]), flush=True)
    if not dry_run:
        print(f"job {sbatch(words).number}")
    return 0


def find_script(kind: str) -> Path:
    """A job script by its path, or by its name in jobs/. Raises ConfigError with the names that there are."""
    if kind == OF_STUDIES:
        raise ConfigError(f"a study is submitted by `hpcnn study submit`, which gives {kind}{SUFFIX} its tasks")
    for path in (JOBS / f"{kind}{SUFFIX}", Path(kind)):
        if path.is_file():
            return path
    names = sorted({path.stem for path in JOBS.glob(f"*{SUFFIX}")} - {OF_STUDIES})
    if not names:
        raise ConfigError(f"there is no {JOBS}/ with job scripts here: submit from the top of a clone of hpcnn")
    near = difflib.get_close_matches(kind, names, n=1)
    remedy = f"did you mean {near[0]}? " if near else ""
    raise ConfigError(f"no job script {kind!r}: {remedy}known are {', '.join(names)}")


def train_flags(options: Mapping[str, Any]) -> list[str]:
    """The settings among parsed `options` as arguments of `hpcnn train`.

    Raises ConfigError where a value is none of the setting's: told now, not when the job has waited its time."""
    words: list[str] = []
    for name in (*RunConfig.__dataclass_fields__, KERAS_BACKEND):
        if name not in options:
            continue
        flag, value = "--" + name.replace("_", "-"), options[name]
        if name in OPTION_FIELDS:
            words += [word for one in value for word in (flag, one)]
        elif isinstance(value, bool):
            words.append(flag if value else f"--no-{flag.removeprefix('--')}")
        else:
            check_setting(name, value)
            words += [flag, str(value)]
    return words
