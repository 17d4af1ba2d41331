"""What a framework on Theano says of a native layer: it is compiled for a few rows and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcnn.network.native import Native
from hpcnn.wrappers.native import Array, probe, refuse_precision, refuse_state
from hpcnn.wrappers.theano_import import import_theano
from hpcnn.wrappers.theano_segment import Graph, compiled


@dataclass(frozen=True)
class Found:
    """Of a native layer: the output shape of one sample, and its trained shared variables by name."""

    output_shape: tuple[int, ...]
    tensors: Mapping[str, Any]


def shared_facts(
    layer: Native,
    apply: Callable[[Any], Any],
    input_shape: tuple[int, ...],
    trained: Mapping[str, Any],
    others: Sequence[str],
) -> Found:
    """`apply`: rows' expression to the output's. `others`: names of what the layer keeps beside its weights.

    BackendError, naming the layer, where it is no function of each row and its weights."""
    theano = import_theano()

    def call(rows: Array) -> object:
        # anew each time, so that a function is seen to give another expression
        x = theano.tensor.TensorType("float32", (False,) * rows.ndim)("x")
        output = apply(x)
        return compiled(Graph([x], [output]))(rows)[0] if isinstance(output, theano.Variable) else output

    try:
        output_shape = probe(layer, call, input_shape)
    finally:  # says more than what state does to a probe
        refuse_state(layer, others)
    refuse_precision(layer, {name: one.dtype for name, one in trained.items() if one.dtype != "float32"})
    return Found(output_shape, trained)


def named(names: Sequence[str], variables: Sequence[Any]) -> dict[str, Any]:
    """Variables by their names, numbered where two are alike."""
    unique = [name if names.count(name) == 1 else f"{name}.{place}" for place, name in enumerate(names)]
    return dict(zip(unique, variables, strict=True))
