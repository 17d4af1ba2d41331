"""Where settings come from: flags, over a TOML file, over those of a run that is resumed.

A run file holds a table [run], a key a setting, and tables [backend.NAME] and [reducer.NAME] with the switches of
frameworks and of reducers.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcnn.backend_options import OPTIONS, resolve_options
from hpcnn.config import OPTION_FIELDS, RunConfig
from hpcnn.config_fields import check_value, flag_of, kind_of, words_for
from hpcnn.errors import ConfigError
from hpcnn.reducer_options import TABLES, resolve_reducer

KERAS_BACKEND = "keras_backend"
KINDS: dict[str, tuple[Mapping[str, Any], Callable[..., Any]]] = {
    "backend": (OPTIONS, resolve_options),
    "reducer": (TABLES, resolve_reducer),
}
"""Of settings with switches: the tables by name, and what checks one."""


def add_flags(parser: argparse._ActionsContainer) -> None:
    """One flag a field; a flag that was not given stays out of the namespace, so that the file's value holds."""
    for item in dataclasses.fields(RunConfig):
        if item.name in OPTION_FIELDS:
            parser.add_argument(
                flag_of(item), action="append", default=argparse.SUPPRESS, metavar="KEY=VALUE",
                help=item.metadata["help"],
            )  # fmt: skip
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
    file = read_run_file(Path(path)) if path is not None else RunFile({}, {kind: {} for kind in KINDS})
    values: dict[str, Any] = {**base, **file.run}
    fields = {item.name: item for item in dataclasses.fields(RunConfig)}
    for name, text in flags.items():
        if name not in (*OPTION_FIELDS, KERAS_BACKEND):
            values[name] = _converted(fields[name], text)
    for kind in KINDS:
        name = values.get(kind, fields[kind].default)
        if not isinstance(name, str):
            raise ConfigError(f"{kind} is {name!r}: give its name under [run], its switches under [{kind}.NAME]")
        # a resumed run's switches are those of its own backend and reducer
        own = dict(base.get(f"{kind}_option", {})) if name == base.get(kind, fields[kind].default) else {}
        values[f"{kind}_option"] = {**own, **file.tables[kind].get(name, {}), **_flag_options(flags, kind, name)}
    return RunConfig(**values)


def check_setting(name: str, text: Any) -> None:
    """Raises ConfigError where what a flag gives is no value of its setting, whatever the others are."""
    fields = {item.name: item for item in dataclasses.fields(RunConfig)}
    if name in fields and name not in OPTION_FIELDS:
        check_value(fields[name], _converted(fields[name], text))


def _flag_options(flags: Mapping[str, Any], kind: str, name: str) -> dict[str, str]:
    options = {}
    for text in flags.get(f"{kind}_option", ()):
        key, sign, value = text.partition("=")
        if not (key and sign and value):
            raise ConfigError(f"--{kind}-option takes KEY=VALUE, not {text!r}: `hpcnn backends` lists keys")
        options[key] = value
    if kind == "backend" and KERAS_BACKEND in flags:
        if name != "keras":
            raise ConfigError(f"--keras-backend belongs to --backend keras, not to {name}: leave it out")
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
    """What a run file says: its table [run], and its tables [backend.NAME] and [reducer.NAME], by kind and name."""

    run: dict[str, Any]
    tables: dict[str, dict[str, dict[str, Any]]]


def read_run_file(path: Path) -> RunFile:
    """A run file. Raises ConfigError where it is missing, no TOML, or holds an unknown table or key."""
    document = read_toml(path, "no such run file; give a TOML file with a table [run], or flags alone")
    unknown = sorted(set(document) - {"run", *KINDS})
    if unknown:
        raise ConfigError(
            f"{path}: unknown table or key {unknown[0]!r}: settings stand in the table [run], those of frameworks in "
            "[backend.NAME], those of reducers in [reducer.NAME]"
        )
    return run_tables(path, document)


def read_toml(path: Path, absent: str) -> dict[str, Any]:
    """A TOML file. Raises ConfigError, with the words `absent` where there is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: {absent}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None


def run_tables(path: Path, document: Mapping[str, Any]) -> RunFile:
    """The tables of a run, of a file that may have others. Raises ConfigError, after `path`, for an unknown key."""
    table = document.get("run", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: 'run' is not a table: write its settings under a line [run]")
    names = [item.name for item in dataclasses.fields(RunConfig) if item.name not in OPTION_FIELDS]
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
            raise ConfigError(f"{path}: [run] {key!r} is unknown: {remedy}")
    return RunFile(dict(table), {kind: _tables(path, kind, document.get(kind, {})) for kind in KINDS})


def _tables(path: Path, kind: str, tables: Any) -> dict[str, dict[str, Any]]:
    """All of them are checked, also those of what does not run."""
    if not isinstance(tables, dict):
        raise ConfigError(
            f"{path}: {kind!r} is not a table: write {kind} = NAME under [run], switches under [{kind}.NAME]"
        )
    known, resolve = KINDS[kind]
    for name, table in tables.items():
        where = f"{path}: [{kind}.{name}]"
        if name not in known:
            raise ConfigError(f"{where} is unknown: choose from {', '.join(known)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{where} is not a table: write its switches under a line [{kind}.{name}]")
        resolve(name, table, where)
    return dict(tables)
