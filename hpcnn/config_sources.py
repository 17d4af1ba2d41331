"""Where settings come from: flags, over a TOML file, over those of a run that is resumed.

A run file holds a table [run], a key a setting, and tables [backend.NAME] with the switches of frameworks.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcnn.backend_options import OPTIONS, resolve_options
from hpcnn.config import RunConfig, flag_of, kind_of, words_for
from hpcnn.errors import ConfigError

OPTION = "backend_option"
KERAS_BACKEND = "keras_backend"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """One flag a field; a flag that was not given stays out of the namespace, so that the file's value holds."""
    for item in dataclasses.fields(RunConfig):
        if item.name == OPTION:
            _add_option_flags(parser, item.metadata["help"])
            continue
        kind, choices = kind_of(item), item.metadata["choices"]
        default = item.default
        text = item.metadata["help"] + ("" if default is None else f" (default: {default})")
        if kind is bool:
            parser.add_argument(
                flag_of(item), action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text
            )
        else:
            metavar = "|".join(choices) if choices else item.name.upper()
            parser.add_argument(flag_of(item), default=argparse.SUPPRESS, metavar=metavar, help=text)


def _add_option_flags(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--backend-option", action="append", default=argparse.SUPPRESS, metavar="KEY=VALUE", help=text)
    parser.add_argument(
        "--keras-backend", default=argparse.SUPPRESS, metavar="NAME",
        help="what Keras computes with; short for --backend-option backend=NAME",
    )  # fmt: skip


def config_from(
    flags: Mapping[str, Any], path: str | Path | None = None, base: Mapping[str, Any] | None = None
) -> RunConfig:
    """`base` (a resumed run's settings), overridden by TOML file `path`, overridden by `flags` (texts, as a shell gives
    them).

    Raises ConfigError with the flag or key, the value and what it may be.
    """
    base = base or {}
    file = read_run_file(Path(path)) if path is not None else RunFile({}, {})
    values: dict[str, Any] = {**base, **file.run}
    fields = {item.name: item for item in dataclasses.fields(RunConfig)}
    for name, text in flags.items():
        if name not in (OPTION, KERAS_BACKEND):
            values[name] = _converted(fields[name], text)
    backend = values.get("backend", fields["backend"].default)
    # a resumed run's switches are those of its own backend
    if not isinstance(backend, str):
        raise ConfigError(f"backend is {backend!r}: give its name under [run], its switches under [backend.NAME]")
    own = dict(base.get(OPTION, {})) if backend == base.get("backend") else {}
    values[OPTION] = {**own, **file.backends.get(backend, {}), **_flag_options(flags, backend)}
    return RunConfig(**values)


def _flag_options(flags: Mapping[str, Any], backend: str) -> dict[str, str]:
    options = {}
    for text in flags.get(OPTION, ()):
        key, sign, value = text.partition("=")
        if not (key and sign and value):
            raise ConfigError(f"--backend-option takes KEY=VALUE, not {text!r}: `hpcnn backends` lists keys")
        options[key] = value
    if KERAS_BACKEND in flags:
        if backend != "keras":
            raise ConfigError(f"--keras-backend belongs to --backend keras, not to {backend}: leave it out")
        if options.setdefault("backend", flags[KERAS_BACKEND]) != flags[KERAS_BACKEND]:
            raise ConfigError(
                f"--keras-backend {flags[KERAS_BACKEND]} and --backend-option backend={options['backend']}: give one"
            )
    return options


def _converted(item: dataclasses.Field[Any], text: Any) -> Any:
    kind = kind_of(item)
    if not isinstance(text, str) or kind is str:
        return text
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{flag_of(item)} takes {words_for(kind)}, not {text!r}") from None


@dataclass(frozen=True)
class RunFile:
    """What a run file says: its table [run], and its tables [backend.NAME] by name."""

    run: dict[str, Any]
    backends: dict[str, dict[str, Any]]


def read_run_file(path: Path) -> RunFile:
    """A run file. Raises ConfigError where it is missing, no TOML, or holds an unknown table or key."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such run file; give a TOML file with a table [run], or flags alone") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None
    unknown = sorted(set(document) - {"run", "backend"})
    if unknown:
        raise ConfigError(
            f"{path}: unknown table or key {unknown[0]!r}: settings stand in the table [run], those of frameworks in "
            "[backend.NAME]"
        )
    table = document.get("run", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: 'run' is not a table: write its settings under a line [run]")
    names = [item.name for item in dataclasses.fields(RunConfig) if item.name != OPTION]
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
            raise ConfigError(f"{path}: [run] {key!r} is unknown: {remedy}")
    return RunFile(dict(table), _backend_tables(path, document.get("backend", {})))


def _backend_tables(path: Path, tables: Any) -> dict[str, dict[str, Any]]:
    """All of them are checked, also those of backends that do not run."""
    if not isinstance(tables, dict):
        raise ConfigError(
            f"{path}: 'backend' is not a table: write backend = NAME under [run], switches under [backend.NAME]"
        )
    for name, table in tables.items():
        where = f"{path}: [backend.{name}]"
        if name not in OPTIONS:
            raise ConfigError(f"{where} is unknown: choose from {', '.join(OPTIONS)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{where} is not a table: write its switches under a line [backend.{name}]")
        resolve_options(name, table, where)
    return dict(tables)
