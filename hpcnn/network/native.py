"""The escape hatch: a layer that one framework has and the others do not, named in plain data like any other.

    Native(backend="torch", build="torch.nn:GroupNorm", arguments={"num_groups": 4, "num_channels": 32})

The framework is asked for its tensors once, when the network is built (`complete`), and from then on they stand in the
spec: the canonical vector, the initial weights and a checkpoint know them without the framework. They keep its own
layout, and start constant where the framework starts them so, else drawn from the seed as all weights are.
"""

# ruff: noqa: RUF009 (a Converted is a descriptor: all layers of a class share it by design)

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from hpcnn.errors import NetworkError
from hpcnn.network import fields
from hpcnn.network.fields import Converted
from hpcnn.network.initialisers import canonical_initialiser
from hpcnn.network.layers import Layer, layer_type


class NativeTensor(NamedTuple):
    """One tensor of a native layer. `initialiser`: by which it is drawn, or None where it starts at `constant`."""

    name: str
    shape: tuple[int, ...]
    initialiser: str | None = None
    constant: float = 0.0


def _text(layer: Any, field: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise fields.refusal(layer, field, value, "a name")
    return value


def _arguments(layer: Any, field: str, value: Any) -> dict[str, Any]:
    """A dictionary that a file can hold."""
    rule = "a table of names and plain values (texts, numbers, true or false, lists of them)"
    value = {} if value is None else value
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise fields.refusal(layer, field, value, rule)
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(value)))
    except (TypeError, ValueError):
        raise fields.refusal(layer, field, value, rule) from None
    return plain


def _shape(layer: Any, field: str, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(fields.is_whole(one, 1) for one in value):
        raise fields.refusal(layer, field, value, "a list of whole numbers, each at least 1")
    return tuple(int(one) for one in value)


def _tensors(layer: Any, field: str, value: Any) -> tuple[NativeTensor, ...] | None:
    """From tuples, or from the form that files hold: {"weight": {"shape": [32], "constant": 1.0}, ...}."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        value = {tensor[0]: dict(zip(NativeTensor._fields[1:], tensor[1:], strict=False)) for tensor in value}
    return tuple(_tensor(layer, name, settings) for name, settings in value.items())


def _tensor(layer: Any, name: Any, settings: Any) -> NativeTensor:
    known = ", ".join(NativeTensor._fields[1:])
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise fields.refusal(layer, "parameters", name, "names of letters, digits, '_', '-' and '.'")
    if not isinstance(settings, Mapping) or "shape" not in settings or set(settings) - set(NativeTensor._fields[1:]):
        raise fields.refusal(layer, f"parameters.{name}", settings, f"a table with shape, of {known}")
    shape = _shape(layer, f"parameters.{name}.shape", settings["shape"]) or ()
    initialiser = settings.get("initialiser")
    if initialiser is not None:
        try:
            initialiser = canonical_initialiser(initialiser)
        except NetworkError as error:
            raise NetworkError(f"{layer.label}: {error}") from None
    constant = fields.finite(layer, f"parameters.{name}.constant", settings.get("constant", 0.0))
    return NativeTensor(name, shape, initialiser, constant)


@layer_type("native", short="native")
@dataclass(frozen=True, kw_only=True)
class Native(Layer):
    """A layer of one framework: `build` is "module:attribute", or a name given to `set_custom_backend`.

    A class is made with `arguments`; a function is the layer itself, called with the rows and `arguments`. Images come
    to it in its framework's own order of axes. `output_shape`: of one sample, (channels, height, width) or (units,).
    """

    backend: Converted[str, str] = Converted(_text)
    build: Converted[str, str] = Converted(_text)
    arguments: Converted[Mapping[str, Any] | None, dict[str, Any]] = Converted(_arguments, None)
    parameters: Converted[Any, tuple[NativeTensor, ...] | None] = Converted(_tensors, None)
    output_shape: Converted[Sequence[int] | None, tuple[int, ...] | None] = Converted(_shape, None)

    def known_parameters(self) -> tuple[NativeTensor, ...]:
        """NetworkError where the framework has not been asked yet."""
        if self.parameters is None:
            raise NetworkError(
                f"{self.label}: its parameters are not known: give them (an empty list for none), or build the network "
                f"with --backend {self.backend}, which knows them"
            )
        return self.parameters

    def fans(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Fan in and fan out of a tensor: torch, Caffe and Lasagne's kernels have outputs first, others last."""
        if len(shape) < 2:
            return prod(shape), prod(shape)
        first = self.backend in ("torch", "caffe") or (self.backend == "lasagne" and len(shape) > 2)
        ordered = shape if first else (shape[-1], shape[-2], *shape[:-2])
        window = prod(ordered[2:])
        return ordered[1] * window, ordered[0] * window


Complete = Callable[[Native, tuple[int, ...]], Native]


def complete_natives(layers: Iterable[Layer], input_shape: tuple[int, ...], complete: Complete | None) -> list[Layer]:
    """The layers, named for messages, with what `complete(layer, its input shape)` finds out of each native one that
    does not say it all."""
    from hpcnn.network.shapes import output_shape  # shapes knows every layer, this one included

    completed: list[Layer] = []
    for layer in layers:
        if isinstance(layer, Native) and layer.parameters is None and complete is not None:
            layer = complete(layer, input_shape)
        input_shape = output_shape(layer, input_shape)
        completed.append(layer)
    return completed
