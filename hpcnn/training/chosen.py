"""Which settings of the command a person's lines give, and which may be given beside them by their own names."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from hpcnn.config import RunConfig
from hpcnn.errors import ConfigError

LINES = ("backend", "network", "input_shape", "classes", "train", "global_batch", "epochs", "resume")
"""Given by what is called and by its arguments."""

OPTIMIZER = (
    "optimizer", "learning_rate", "base_batch", "momentum", "nesterov", "beta1", "beta2", "decay", "warmup_epochs",
    "weight_decay", "weight_decay_kind",
)  # fmt: skip
"""Given to `compile`."""

OTHERS = tuple(f.name for f in dataclasses.fields(RunConfig) if f.name not in (*LINES, *OPTIMIZER))
"""May be given to the wrapper, for all that it does, and to `train`."""

LEARNT_WITH = ("seed", "normalise")
"""What a loaded checkpoint goes on with, besides its optimizer."""


def known_settings(where: str, given: Mapping[str, Any], known: Sequence[str]) -> Mapping[str, Any]:
    """`given`, if all of it is known. Raises ConfigError that lists what is."""
    for name in given:
        if name == "keras_backend":
            raise ConfigError(f"{where} takes no keras_backend: give backend_option={{'backend': {given[name]!r}}}")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]}? known are" if near else "known are"
            raise ConfigError(f"{where} takes no setting {name!r}: {remedy} {', '.join(known)}")
    return given
