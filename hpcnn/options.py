"""Tables of switches by name: [backend.NAME] and [reducer.NAME] of a run file, known before what they are for is
imported.

A table is a frozen dataclass whose fields are made by `option`. A text stands for a value as a flag gives it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from hpcnn.errors import ConfigError

MOST_OF_AN_INTEGER = 4096
MOST_OF_A_NUMBER = 3600
"""Of an option that is no whole number: seconds, or a ratio of them."""


def option(default: Any, text: str, choices: Sequence[str] = ()) -> Any:
    """A field with its help text; of a text, what it may be."""
    return field(default=default, metadata={"help": text, "choices": tuple(choices)})


def resolve(table: type[Any], given: Mapping[str, Any], where: str) -> Any:
    """An instance of `table`, `given` over its defaults.

    Raises ConfigError, after `where`, for an unknown key or a value of another type."""
    known = {item.name: item for item in dataclasses.fields(table)}
    values = {}
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            remedy = f"did you mean {near[0]}? known" if near else "known"
            raise ConfigError(f"{where} {key!r} is unknown: {remedy} are {', '.join(known) or 'none'}")
        values[key] = _checked(f"{where} {key}", known[key], value)
    return table(**values)


def _checked(name: str, item: dataclasses.Field[Any], value: Any) -> Any:
    kind, choices, given = str(item.type).split(" ")[0], item.metadata["choices"], value
    if kind == "bool":
        value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise ConfigError(f"{name} takes true or false, not {value!r}")
    elif kind == "int":
        value = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value) else value
        if type(value) is not int or not 1 <= value <= MOST_OF_AN_INTEGER:
            raise ConfigError(f"{name} takes a whole number from 1 to {MOST_OF_AN_INTEGER}, not {value!r}")
    elif kind == "float":
        value = _number(value)
        if value is None or not 0 <= value <= MOST_OF_A_NUMBER:
            raise ConfigError(f"{name} takes a number from 0 to {MOST_OF_A_NUMBER}, not {given!r}")
    elif choices and value not in choices:
        raise ConfigError(f"{name} {value!r} is unknown: choose from {', '.join(choices)}")
    return value


def _number(value: Any) -> float | None:
    """As a float, where it is a number or the text of one."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    with contextlib.suppress(ValueError, OverflowError):
        return float(value)
    return None
