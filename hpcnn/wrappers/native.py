"""A framework's own layers: found by name, made, and asked what they hold, for wrappers and for `complete_natives`."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.errors import BackendError
from hpcnn.network.layers import Layer
from hpcnn.network.native import Native, NativeTensor

Array = NDArray[np.float32]
Build = Callable[..., Any]
_CUSTOM: dict[tuple[str, str], Build] = {}
DRAWN_BY = "glorot_uniform"
"""What draws a tensor that its framework starts at random."""


def set_custom_backend(backend: str, name: str, build: Build) -> None:
    """Let a `Native` layer with build=`name` be made by `build(**arguments)`, in this process and that backend.

    On several ranks, call it on each of them. The last one given under a name holds.
    """
    if ":" in name:
        raise BackendError(f"a custom layer cannot be named {name!r}: ':' is for module:attribute")
    _CUSTOM[backend, name] = build


def refuse_layer(backend: str, layer: Layer) -> BackendError:
    """The error for a layer that a wrapper cannot build: which, why, and what can."""
    if isinstance(layer, Native) and layer.backend != backend:
        return BackendError(
            f"--backend {backend} cannot build {layer.label}: {layer.build} is {layer.backend}'s own, so "
            f"--backend {layer.backend} can; use that, or another layer"
        )
    return BackendError(f"--backend {backend} cannot build {layer.label}: use another layer or another backend")


def make_native(layer: Native, backend: str, *incoming: Any) -> Any:
    """The framework's object: an instance of a class, or a function of the rows. BackendError naming the layer.

    `incoming`: what a class is given before its arguments, where layers are built onto one another."""
    if layer.backend != backend:
        raise refuse_layer(backend, layer)
    custom = _CUSTOM.get((backend, layer.build))
    found = custom or _found(layer)
    if not callable(found):
        raise BackendError(
            f"{layer.label}: {layer.build} is a {type(found).__name__}: name a class, or a function of the rows"
        )
    if custom is None and not inspect.isclass(found):
        if hasattr(found, "parameters") or hasattr(found, "trainable_variables"):
            raise BackendError(f"{layer.label}: {layer.build} is made already, and would be shared: name its class")
        return partial(found, **layer.arguments)
    try:
        return found(*incoming, **layer.arguments)
    except (Exception, SystemExit) as error:
        raise _refusal(layer, f"cannot be made with {layer.arguments}", error) from error


def _found(layer: Native) -> Build:
    module_name, sign, attribute = layer.build.partition(":")
    if not sign:
        names = [name for backend, name in _CUSTOM if backend == layer.backend]
        raise BackendError(
            f"{layer.label}: {layer.build!r} is not known: give module:attribute, or a name given to "
            f"set_custom_backend "
            f"for {layer.backend} ({', '.join(names) or 'none so far'})"
        )
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)  # a module of the user's own, beside the run file
    try:
        part = ""
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        near = difflib.get_close_matches(part, dir(found), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BackendError(f"{layer.label}: no {layer.build}: {error}{hint}") from None
    except (Exception, SystemExit) as error:
        raise BackendError(
            f"{layer.label}: no {layer.build}: {error}; modules are looked for here too: {here}"
        ) from None
    finally:
        if added:
            sys.path.remove(here)
    build: Build = found
    return build


def _refusal(layer: Native, what: str, error: BaseException) -> BackendError:
    words = " ".join(str(error).split())[:300]
    return BackendError(f"{layer.label}: {layer.build} {what}: {type(error).__name__}: {words}")


PROBE_ROWS = 3
MIXED = 1e-3
"""Relative difference of a row's output with and without its neighbours, beyond what float32 rounds otherwise."""


def probe(layer: Native, call: Callable[[Array], Any], input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The output shape of one sample, from a few rows through `call`, NumPy to NumPy, as in training.

    BackendError where it fails, or where the output is no function of each row and the weights alone: it would then
    depend on how rows are spread over ranks.
    """
    rows = np.random.default_rng(0).standard_normal((PROBE_ROWS, *input_shape)).astype(np.float32)
    try:
        first, again, fewer = call(rows), call(rows), call(rows[1:])
    except (Exception, SystemExit) as error:
        raise _refusal(layer, f"cannot take rows of {input_shape}", error) from error
    if not isinstance(first, np.ndarray):
        raise BackendError(
            f"{layer.label}: {layer.build} gives {type(first).__name__}, not rows: name a class, or a function of the "
            "rows; a function that makes a layer goes to set_custom_backend"
        )
    if first.shape[:1] != (PROBE_ROWS,):
        raise BackendError(f"{layer.label}: {layer.build} turns {PROBE_ROWS} rows into {first.shape}: keep the rows")
    if first.ndim < 2:
        raise BackendError(
            f"{layer.label}: {layer.build} gives a number a row: give rows of units, (rows, 1), or of images"
        )
    if not np.array_equal(first, again, equal_nan=True):
        raise BackendError(
            f"{layer.label}: {layer.build} gives another output each time: randomness that is not the suite's own (use "
            "a dropout layer), or state, would differ between ranks"
        )
    if np.linalg.norm(first[1:] - fewer) > MIXED * np.linalg.norm(fewer):
        raise BackendError(
            f"{layer.label}: {layer.build} mixes rows: an output that depends on the other rows of a batch "
            "would depend on how they are spread over ranks"
        )
    return tuple(first.shape[1:])


def found_tensors(made: Sequence[Mapping[str, Any]]) -> tuple[NativeTensor, ...]:
    """Specs of a layer's tensors, from the NumPy values of two instances made alike.

    Where both hold the same number everywhere, the tensor starts at it; else it is drawn.
    """
    one, other = made
    tensors = []
    for name, value in one.items():
        values = np.concatenate([np.ravel(value), np.ravel(other[name])])
        constant = float(values[0]) if values.size and np.all(values == values[0]) else None
        tensors.append(
            NativeTensor(name, tuple(np.shape(value)), None if constant is not None else DRAWN_BY, constant or 0.0)
        )
    return tuple(tensors)


def completed(layer: Native, tensors: tuple[NativeTensor, ...], output_shape: tuple[int, ...]) -> Native:
    """The layer with what its framework says of it; what was given stays."""
    return dataclasses.replace(
        layer, parameters=tensors, output_shape=output_shape if layer.output_shape is None else layer.output_shape
    )


def check_native(layer: Native, shapes: Mapping[str, tuple[int, ...]], output_shape: tuple[int, ...]) -> None:
    """BackendError where the framework's layer is not what the spec says."""
    said = {tensor.name: tensor.shape for tensor in layer.known_parameters()}
    if said != dict(shapes):
        raise BackendError(
            f"{layer.label}: {layer.build} holds {_shown(shapes)}, the spec says {_shown(said)}: leave its parameters "
            "out, and they are found"
        )
    if layer.output_shape is not None and layer.output_shape != output_shape:
        raise BackendError(
            f"{layer.label}: {layer.build} gives {output_shape}, the spec says {layer.output_shape}: mend output_shape"
        )


def _shown(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "no parameters"


def refuse_state(layer: Native, names: Sequence[str]) -> None:
    """State beside the weights (running statistics, a generator of random numbers) would differ between ranks."""
    if names:
        raise BackendError(
            f"{layer.label}: {layer.build} keeps {', '.join(names)} beside its weights, which ranks do not share: "
            "use a layer whose output depends on its weights and rows alone"
        )


def refuse_precision(layer: Native, others: Mapping[str, str]) -> None:
    """`others`: names of tensors that are not float32, and what they are."""
    for name, precision in others.items():
        raise BackendError(f"{layer.label}: {layer.build} holds {name} as {precision}: weights are float32")
