"""Layer specs: what a layer is, in words that no framework owns.

A spec is frozen, keyword-only, checks its own values (NetworkError naming the layer) and holds full forms: pairs are
(height, width), padding is "same", "valid" or ((top, bottom), (left, right)). Wrappers translate specs; only shapes.py
knows what they do to a shape.
"""

# ruff: noqa: RUF009 (a Converted is a descriptor: all layers of a class share it by design)

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from hpcnn.errors import NetworkError
from hpcnn.network import fields
from hpcnn.network.fields import Converted, GivenPadding, GivenPair, Padding, Pair
from hpcnn.network.initialisers import canonical_initialiser

LAYER_TYPES: dict[str, type[Layer]] = {}
LayerClass = TypeVar("LayerClass", bound="type[Layer]")


def layer_type(type_name: str, *, short: str) -> Callable[[LayerClass], LayerClass]:
    """Register a spec under the type name that files use; `short` is what its automatic names begin with."""

    def register(cls: LayerClass) -> LayerClass:
        if type_name in LAYER_TYPES:
            raise ValueError(f"layer type {type_name!r} is registered twice")
        cls.type_name, cls.short = type_name, short
        LAYER_TYPES[type_name] = cls
        return cls

    return register


def _name(layer: Layer, field: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[\w.-]*", value, re.ASCII):
        raise NetworkError(f"{layer.type_name}: name is {value!r}; use letters, digits, '_', '-' and '.' only")
    return value


def _initialiser(layer: Layer, field: str, value: Any) -> str:
    try:
        return canonical_initialiser(value)
    except NetworkError as error:
        raise NetworkError(f"{layer.label}: {error}") from None


def _stride_or_size(layer: Any, field: str, value: Any) -> Pair:
    return fields.pair(layer, field, layer.size if value is None else value)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Base of all specs. An empty name is filled in by the architecture (conv1, relu1, ...)."""

    type_name: ClassVar[str]
    short: ClassVar[str]
    name: Converted[str, str] = Converted(_name, "")

    @property
    def label(self) -> str:
        """How messages name the layer: convolution 'conv1'."""
        return f"{self.type_name} {self.name!r}" if self.name else self.type_name


@layer_type("convolution", short="conv")
@dataclass(frozen=True, kw_only=True)
class Conv2D(Layer):
    """Cross-correlation with kernels (filters, in / groups, height, width); each filter's bias starts at `bias`."""

    filters: Converted[int, int] = Converted(fields.positive)
    kernel: Converted[GivenPair, Pair] = Converted(fields.pair)
    stride: Converted[GivenPair, Pair] = Converted(fields.pair, 1)
    padding: Converted[GivenPadding, Padding] = Converted(fields.padding, "valid")
    groups: Converted[int, int] = Converted(fields.positive, 1)
    kernel_initialiser: Converted[str, str] = Converted(_initialiser, "glorot_uniform")
    bias: Converted[float, float] = Converted(fields.finite, 0.0)

    def __post_init__(self) -> None:
        if self.filters % self.groups:
            raise fields.refusal(self, "filters", self.filters, f"a multiple of its {self.groups} groups")


@dataclass(frozen=True, kw_only=True)
class Pool2D(Layer):
    """Base of the pools: windows of `size`, a `stride` apart (default: size); what is left over is dropped."""

    size: Converted[GivenPair, Pair] = Converted(fields.pair, 2)
    stride: Converted[GivenPair | None, Pair] = Converted(_stride_or_size, None)


# Specs that add no field are not decorated again: mypy would type the inherited ones as they are given, not as held.
@layer_type("max_pool", short="pool")
class MaxPool2D(Pool2D):
    """The largest of each window; its gradient goes to the first maximum in row-major order."""


@layer_type("average_pool", short="pool")
class AveragePool2D(Pool2D):
    """The mean of each window."""


@layer_type("flatten", short="flatten")
class Flatten(Layer):
    """(channels, height, width) to one axis, in that order."""


@layer_type("dense", short="dense")
@dataclass(frozen=True, kw_only=True)
class Dense(Layer):
    """Weights (units, in) times the input, plus a bias a unit that starts at `bias`."""

    units: Converted[int, int] = Converted(fields.positive)
    kernel_initialiser: Converted[str, str] = Converted(_initialiser, "glorot_uniform")
    bias: Converted[float, float] = Converted(fields.finite, 0.0)


@layer_type("relu", short="relu")
class ReLU(Layer):
    """max(x, 0); its slope at 0 is 0."""


@layer_type("tanh", short="tanh")
class Tanh(Layer):
    """Hyperbolic tangent."""


@layer_type("softmax", short="softmax")
class Softmax(Layer):
    """The head: softmax, in training fused with the cross-entropy loss."""


@layer_type("dropout", short="dropout")
@dataclass(frozen=True, kw_only=True)
class Dropout(Layer):
    """In training, times a mask of 0 (probability `rate`) or 1 / (1 - rate) that enters the segment as an input."""

    rate: Converted[float, float] = Converted(fields.fraction)


def refuse_batch_normalisation(type_name: str) -> None:
    """Batch normalisation under any spelling is refused with the reason."""
    letters = re.sub("[^a-z]", "", type_name.lower())
    if letters in ("bn", "batchrenorm") or "batchnorm" in letters:
        raise NetworkError(
            f"{type_name}: batch normalisation is refused: statistics over the global batch do not fit rule 1 "
            "(a gradient is a sum over rows), so the result would depend on how the rows are spread over ranks; "
            "leave the layer out"
        )


def layer_to_dict(layer: Layer) -> dict[str, Any]:
    """A spec as plain data for JSON: its type, its name and every value in full form."""
    values = {field.name: getattr(layer, field.name) for field in dataclasses.fields(layer)}
    return {"type": layer.type_name, **{name: _as_lists(value) for name, value in values.items()}}


def layer_from_dict(values: Mapping[str, Any]) -> Layer:
    """The spec that `values` describes; NetworkError for a missing key, an unknown key or an unknown type."""
    type_name = values.get("type")
    refuse_batch_normalisation(str(type_name))
    if not isinstance(type_name, str) or type_name not in LAYER_TYPES:
        raise NetworkError(f"layer type {type_name!r} is unknown; choose one of {', '.join(LAYER_TYPES)}")
    cls = LAYER_TYPES[type_name]
    known = {field.name: field.default is dataclasses.MISSING for field in dataclasses.fields(cls)}
    given = {key: value for key, value in values.items() if key != "type"}
    if unknown := [key for key in given if key not in known]:
        raise NetworkError(f"{type_name}: unknown key {unknown[0]!r}; known are {', '.join(known)}")
    if missing := [key for key, required in known.items() if required and key not in given]:
        raise NetworkError(f"{type_name}: {missing[0]!r} is missing; give it a value")
    return cls(**given)


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value
