"""The frameworks' own switches, which stay reachable: a table a backend in the run file, known before it is imported.

    [backend.torch]
    compile = true

The same by flag, for the backend that runs: `--backend-option compile=true`. Defaults are what was measured to be
fastest without changing results; run.json holds all of them, given or not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpcnn.errors import ConfigError
from hpcnn.options import option, resolve

DEFAULT_BACKEND, _, _DEFAULT_OVER = (os.environ.get("HPCNN_BACKEND") or "torch").partition("-")
"""env/with.sh says for which backend a command runs: its word, of which keras-theano is Keras over Theano."""
USUAL_OVER = "tensorflow"
"""What Keras computes with where neither that nor anybody else says."""


def _threads(text: str) -> Any:
    return option(None, text)


@dataclass(frozen=True, kw_only=True)
class TorchOptions:
    """PyTorch."""

    channels_last: bool = option(True, "keep images channels-last in memory, in which CPUs convolve fastest")
    compile: bool = option(False, "torch.compile each segment; the first step of a size takes long")
    compile_mode: str = option(
        "default", "mode of torch.compile", ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
    )
    intra_op_threads: int | None = _threads("threads of one operation (default: those of the rank)")
    inter_op_threads: int | None = _threads("operations at once (default: torch's own)")


@dataclass(frozen=True, kw_only=True)
class TensorflowOptions:
    """TensorFlow."""

    function: bool = option(True, "compile segments with tf.function; false runs operation by operation")
    jit_compile: bool = option(False, "compile with XLA")
    deterministic: bool = option(True, "refuse operations whose result may change from call to call")
    intra_op_threads: int | None = _threads("threads of one operation (default: those of the rank)")
    inter_op_threads: int | None = _threads("operations at once (default: the threads of the rank)")


@dataclass(frozen=True, kw_only=True)
class KerasOptions:
    """Keras, over one of its backends: Keras 3, and Keras 2 over Theano."""

    backend: str = option(
        USUAL_OVER,
        "what Keras computes with (also --keras-backend)",
        ("tensorflow", "torch", "jax", "theano"),
    )
    jit_compile: bool = option(False, "compile with XLA (tensorflow; jax always does)")
    deterministic: bool = option(True, "refuse operations whose result may change from call to call (tensorflow)")
    intra_op_threads: int | None = _threads("threads of one operation (default: those of the rank)")
    inter_op_threads: int | None = _threads("operations at once (tensorflow; default: the threads of the rank)")
    theano_flags: str = option("", "THEANO_FLAGS (theano), beside what the wrapper sets")


@dataclass(frozen=True, kw_only=True)
class LasagneOptions:
    """Lasagne, on Theano."""

    theano_flags: str = option("", "THEANO_FLAGS, beside what the wrapper sets")
    intra_op_threads: int | None = _threads("threads of one operation (default: those of the rank)")


@dataclass(frozen=True, kw_only=True)
class CaffeOptions:
    """Caffe."""

    intra_op_threads: int | None = _threads("threads of one operation (default: those of the rank)")


@dataclass(frozen=True, kw_only=True)
class SimulatedOptions:
    """No framework: every call sleeps for as long as it is said to take, and nothing is computed."""

    forward_seconds: float = option(0.02, "time that a forward of a segment takes, of any number of rows")
    backward_ratio: float = option(
        2.0, "forwards that a backward takes as long as; each half of a split one half of it"
    )


BackendOptions = TorchOptions | TensorflowOptions | KerasOptions | LasagneOptions | CaffeOptions | SimulatedOptions

OPTIONS: dict[str, type[BackendOptions]] = {
    "torch": TorchOptions,
    "tensorflow": TensorflowOptions,
    "keras": KerasOptions,
    "lasagne": LasagneOptions,
    "caffe": CaffeOptions,
    "simulated": SimulatedOptions,
}


def resolve_options(backend: str, given: Mapping[str, Any], where: str | None = None) -> Any:
    """The backend's options with `given` over the defaults.

    Raises ConfigError, after `where` ([backend.NAME] by default), for an unknown key or a value of another type.
    """
    where = f"[backend.{backend}]" if where is None else where
    if backend not in OPTIONS:
        if given:
            raise ConfigError(f"{where} is unknown: choose from {', '.join(OPTIONS)}")
        return None
    if backend == "keras" and _DEFAULT_OVER:
        given = {"backend": _DEFAULT_OVER, **given}
    options = resolve(OPTIONS[backend], given, where)
    if isinstance(options, TensorflowOptions) and options.jit_compile and not options.function:
        raise ConfigError(f"{where} jit_compile compiles functions, and function is false: leave one of them out")
    return options


def backend_label(backend: str, options: Mapping[str, Any]) -> str:
    """The backend in names of runs and files: what computes, so Keras with the backend under it (keras_jax)."""
    return f"keras_{options.get('backend', USUAL_OVER)}" if backend == "keras" else backend
