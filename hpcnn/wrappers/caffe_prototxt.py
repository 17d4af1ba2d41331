"""The text of a Caffe network, and what has to be known of it to use it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from hpcnn.network.shapes import Shape

MOST_IN_A_BLOB = 2**31 - 1
"""Caffe counts with int, and ends the process where that does not do."""


class Word(str):
    """A value without quotes: one of an enumeration."""


class OwnText(str):
    """Fields as Caffe's protobuf writes them, one or more lines, in place of a value."""


@dataclass
class NetText:
    """Layers are added one behind the other; each takes what the one before it gave."""

    data: str
    data_shape: Shape
    layers: list[dict[str, Any]] = field(default_factory=list)
    masks: list[tuple[str, Shape]] = field(default_factory=list)
    pools: list[tuple[str, str]] = field(default_factory=list)
    """The blobs before and behind each pool that may be a max pool."""
    forced: bool = False
    """Whether everything gets a gradient, the data too."""

    def __post_init__(self) -> None:
        self.output = self.data
        """The blob that the last layer gave."""
        self.largest = prod(self.data_shape)
        """Floats of the largest blob, of one row."""

    @property
    def inputs(self) -> list[tuple[str, Shape]]:
        """Blobs that are filled before a forward, and the shapes of one row."""
        return [(self.data, self.data_shape), *self.masks]

    def add(
        self, name: str, kind: str, shape: Shape, *, top: str = "", more: Sequence[str] = (), **parameters: Any
    ) -> None:
        """A layer that gives `shape` a row, in the blob `top` (default: of its own name)."""
        top = top or name
        self.layers.append({"name": name, "type": kind, "bottom": [self.output, *more], "top": [top], **parameters})
        if kind == "Pooling":
            self.pools.append((self.output, top))
        self.output = top
        self.largest = max(self.largest, prod(shape))

    def text(self, name: str, remark: str) -> str:
        """What a prototxt file holds."""
        inputs = (_input(blob, shape) for blob, shape in self.inputs)
        head = [f"# {_plain(remark)}", f'name: "{_plain(name)}"', *["force_backward: true"] * self.forced]
        layers = [f"layer {{\n{_fields(layer, '  ')}}}" for layer in (*inputs, *self.layers)]
        return "\n".join((*head, *layers)) + "\n"


def _plain(text: str) -> str:
    """A network may be called anything."""
    return re.sub(r"[^\w .,:()-]", "_", text, flags=re.ASCII)


def _input(blob: str, shape: Shape) -> dict[str, Any]:
    return {"name": blob, "type": "Input", "top": blob, "input_param": {"shape": {"dim": [1, *shape]}}}


def _fields(message: Mapping[str, Any], indent: str) -> str:
    """A message in protobuf's text format (https://protobuf.dev/reference/protobuf/textformat-spec)."""
    return "".join(_lines(message, indent))


def _lines(message: Mapping[str, Any], indent: str) -> Iterable[str]:
    for name, values in message.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, OwnText):
                yield from (f"{indent}{line}\n" for line in value.splitlines())
            elif isinstance(value, Mapping):
                yield f"{indent}{name} {{\n{_fields(value, indent + '  ')}{indent}}}\n"
            else:
                yield f"{indent}{name}: {_scalar(value)}\n"


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) and not isinstance(value, Word) else str(value)
