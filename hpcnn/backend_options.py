"""The frameworks' own switches, which stay reachable: a table a backend in the run file, known before it is imported.

    [backend.torch]
    compile = true

The same by flag, for the backend that runs: `--backend-option compile=true`. Defaults are what was measured to be
fastest without changing results; run.json holds all of them, given or not.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcnn.errors import ConfigError

MOST_THREADS = 4096


def _option(default: Any, text: str, choices: Sequence[str] = ()) -> Any:
    return field(default=default, metadata={"help": text, "choices": tuple(choices)})


def _threads(text: str) -> Any:
    return _option(None, text)


@dataclass(frozen=True, kw_only=True)
class TorchOptions:
    """PyTorch."""

    channels_last: bool = _option(True, "keep images channels-last in memory, in which CPUs convolve fastest")
    compile: bool = _option(False, "torch.compile each segment; the first step of a size takes long")
    compile_mode: str = _option(
        "default", "mode of torch.compile", ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
    )
    intra_op_threads: int | None = _threads("threads of one operation (default: those of the rank)")
    inter_op_threads: int | None = _threads("operations at once (default: torch's own)")


@dataclass(frozen=True, kw_only=True)
class TensorflowOptions:
    """TensorFlow."""

    function: bool = _option(True, "compile segments with tf.function; false runs operation by operation")
    jit_compile: bool = _option(False, "compile with XLA")
    deterministic: bool = _option(True, "refuse operations whose result may change from call to call")
    intra_op_threads: int | None = _threads("threads of one operation (default: those of the rank)")
    inter_op_threads: int | None = _threads("operations at once (default: the threads of the rank)")


@dataclass(frozen=True, kw_only=True)
class KerasOptions:
    """Keras 3, over one of its backends."""

    backend: str = _option(
        "tensorflow", "what Keras computes with (also --keras-backend)", ("tensorflow", "torch", "jax")
    )
    jit_compile: bool = _option(False, "compile with XLA (tensorflow; jax always does)")
    deterministic: bool = _option(True, "refuse operations whose result may change from call to call (tensorflow)")
    intra_op_threads: int | None = _threads("threads of one operation (default: those of the rank)")
    inter_op_threads: int | None = _threads("operations at once (tensorflow; default: the threads of the rank)")


BackendOptions = TorchOptions | TensorflowOptions | KerasOptions

OPTIONS: dict[str, type[BackendOptions]] = {
    "torch": TorchOptions,
    "tensorflow": TensorflowOptions,
    "keras": KerasOptions,
}


def resolve_options(backend: str, given: Mapping[str, Any], where: str | None = None) -> Any:
    """The backend's options with `given` over the defaults. A text stands for a value as a flag gives it.

    Raises ConfigError, after `where` ([backend.NAME] by default), for an unknown key or a value of another type.
    """
    where = f"[backend.{backend}]" if where is None else where
    if backend not in OPTIONS:
        if given:
            raise ConfigError(f"{where} is unknown: choose from {', '.join(OPTIONS)}")
        return None
    cls = OPTIONS[backend]
    known = {item.name: item for item in dataclasses.fields(cls)}
    values = {}
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            remedy = f"did you mean {near[0]}? known" if near else "known"
            raise ConfigError(f"{where} {key!r} is unknown: {remedy} are {', '.join(known)}")
        values[key] = _checked(f"{where} {key}", known[key], value)
    options = cls(**values)
    if isinstance(options, TensorflowOptions) and options.jit_compile and not options.function:
        raise ConfigError(f"{where} jit_compile compiles functions, and function is false: leave one of them out")
    return options


def _checked(name: str, item: dataclasses.Field[Any], value: Any) -> Any:
    kind, choices = str(item.type).split(" ")[0], item.metadata["choices"]
    if kind == "bool":
        value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise ConfigError(f"{name} takes true or false, not {value!r}")
    elif kind == "int":
        value = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value) else value
        if type(value) is not int or not 1 <= value <= MOST_THREADS:
            raise ConfigError(f"{name} takes a whole number from 1 to {MOST_THREADS}, not {value!r}")
    elif choices and value not in choices:
        raise ConfigError(f"{name} {value!r} is unknown: choose from {', '.join(choices)}")
    return value


def backend_label(backend: str, options: Mapping[str, Any]) -> str:
    """The backend in names of runs and files: what computes, so Keras with the backend under it (keras_jax)."""
    return f"keras_{options.get('backend', 'tensorflow')}" if backend == "keras" else backend
