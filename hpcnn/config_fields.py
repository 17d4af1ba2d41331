"""A setting as a dataclass field: what it takes, in words for people, and the check of one value by itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from hpcnn.errors import ConfigError

Check = Callable[[Any], bool]


def setting(
    default: Any, text: str, *, check: Check | None = None, limit: str = "", choices: Sequence[str] = ()
) -> Any:
    """A field of the dataclass with its help text and its limit; `limit` says in words what `check` tests."""
    return field(default=default, metadata={"help": text, "check": check, "limit": limit, "choices": tuple(choices)})


def positive(value: Any) -> bool:
    return bool(value > 0)


def not_negative(value: Any) -> bool:
    return bool(value >= 0)


def fraction(value: Any) -> bool:
    return bool(0 <= value < 1)


def folder_name(value: Any) -> bool:
    return value not in ("", ".", "..") and "/" not in value and value.isprintable() and len(value.encode()) <= 200


def flag_of(item: dataclasses.Field[Any]) -> str:
    return "--" + item.name.replace("_", "-")


def kind_of(item: dataclasses.Field[Any]) -> type:
    """The plain type behind an annotation such as `int | None` (annotations are strings here)."""
    return {"str": str, "int": int, "float": float, "bool": bool}[str(item.type).split(" ")[0]]


def check_value(item: dataclasses.Field[Any], value: Any) -> None:
    """Raises ConfigError where a setting's value is of another type, no choice of it, or out of range by itself."""
    if value is None:
        return
    flag, kind, choices, check = flag_of(item), kind_of(item), item.metadata["choices"], item.metadata["check"]
    if type(value) is not kind:
        raise ConfigError(f"{flag} takes {words_for(kind)}, not {value!r}")
    if choices and value not in choices:
        raise ConfigError(f"{flag} {value!r} is unknown: choose from {', '.join(choices)}")
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ConfigError(f"{flag} {value!a} is not UTF-8, results could not be written: use another name")
    endless = isinstance(value, float) and not math.isfinite(value)
    if endless or (check is not None and not check(value)):
        shown = repr(value) if kind is str else value
        limit = ("a finite number, " if endless else "") + item.metadata["limit"]
        raise ConfigError(f"{flag} {shown} is out of range: it must be {limit}")


def as_float(value: int) -> float:
    """The nearest float, infinite where there is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def words_for(kind: type) -> str:
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}[kind]
