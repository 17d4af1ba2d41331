"""A segment as functions that Theano compiles: what Lasagne and Keras on Theano share.

Their layers give an expression of the output; weights are pieces of one flat vector, which enters each function as the
caller's memory, uncopied. A function is compiled when it is first called, so one process that trains compiles two, and
it is kept for all segments of the same layers in this process. Theano has no way to keep what a forward found for a
backward, so a slot keeps the rows and its backward computes the forward again; one call with the labels does not.
"""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hpcnn.network.architecture import Segment
from hpcnn.network.layers import layer_to_dict
from hpcnn.network.native import Native
from hpcnn.wrappers.contract import Array, Capabilities, LossResult, SegmentModel
from hpcnn.wrappers.theano_import import import_theano, module_store, set_theano_up, theano_facts
from hpcnn.wrappers.theano_store import Stopped

_COMPILED: dict[str, Any] = {}


@dataclass(frozen=True)
class Graph:
    """What a function is compiled from; `givens`: variables, and the expressions that stand in for them."""

    inputs: list[Any]
    outputs: list[Any]
    givens: list[tuple[Any, Any]] = field(default_factory=list)

    def answering(self, inputs: list[Any], outputs: list[Any]) -> Graph:
        """With these inputs before its own, and these outputs."""
        return Graph([*inputs, *self.inputs], outputs, self.givens)


class TheanoSegment(SegmentModel):
    """A segment on Theano on the CPU."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        weights_are_views=True, recomputes_forward=True, fuses_loss=True
    )

    @classmethod
    def set_process_up(cls, options: Any, threads: int | None) -> None:
        set_theano_up(options.theano_flags, options.intra_op_threads or threads)

    def __init__(
        self,
        segment: Segment,
        weights: Array,
        gradient: Array,
        *,
        input_gradient: bool | None = None,
        options: Any = None,
    ) -> None:
        super().__init__(segment, weights, gradient, input_gradient=input_gradient, options=options)
        self._theano = import_theano()
        self._gradients = [parameter.view(gradient) for parameter in segment.parameters]
        self._functions: dict[str, Any] = {}
        self._slots: dict[int, tuple[Array, Sequence[Array]]] = {}
        self._key = self._specs()

    def _specs(self) -> str | None:
        """What functions depend on; None where a layer is not ours, and may be another each time."""
        if any(isinstance(layer, Native) for layer in self.segment.layers):
            return None
        layers = [{**layer_to_dict(layer), "name": ""} for layer in self.segment.layers]
        return json.dumps([type(self).__name__, layers, self.segment.input_shape, self.input_gradient])

    @abc.abstractmethod
    def _output(self, x: Any, masks: Sequence[Any] | None, parameters: Mapping[str, Any]) -> Any:
        """The output's expression for rows, masks (None: in inference) and canonical parameters by name."""

    def _function(self, kind: str) -> Any:
        """The compiled one of the method that it is called as."""
        if kind not in self._functions:
            key = None if self._key is None else f"{kind} {self._key}"
            found = _COMPILED.get(key) if key else None
            if found is None:
                found = compiled(getattr(self, f"_{kind}_graph")(), type(self).on_compile)
            if key:
                _COMPILED[key] = found
            self._functions[kind] = found
        return self._functions[kind]

    def _network(self, *, masked: bool) -> tuple[Graph, list[Any], Any]:
        """The graph so far, what gradients are taken of, the output."""
        T = self._theano.tensor
        flat, x, known = T.vector("flat", "float32"), self._rows("x", self.segment.input_shape), self.segment.parameters
        masks = [self._rows("mask", site.shape) for site in self.segment.dropouts] if masked else None
        # each a root of the graph, whose gradient is taken, and in the function a piece of the flat vector
        tensors = [T.TensorType("float32", (False,) * len(one.shape))(one.name) for one in known]
        output = self._output(x, masks, dict(zip((one.name for one in known), tensors, strict=True)))
        pieces = [T.unbroadcast(flat[one.span].reshape(one.shape), *range(len(one.shape))) for one in known]
        graph = Graph([flat, x, *(masks or ())], [output], list(zip(tensors, pieces, strict=True)))
        return graph, [*tensors, *[x] * self.input_gradient], output

    def _rows(self, name: str, shape: tuple[int, ...]) -> Any:
        return self._theano.tensor.TensorType("float32", (False,) * (1 + len(shape)))(name)

    def _infer_graph(self) -> Graph:
        return self._network(masked=False)[0]

    def _forward_graph(self) -> Graph:
        return self._network(masked=True)[0]

    def _backward_graph(self) -> Graph:
        graph, sources, output = self._network(masked=True)
        slope = self._rows("slope", self.segment.output_shape)
        return graph.answering([slope], self._slopes(sources, output, slope))

    def _loss_graph(self) -> Graph:
        T = self._theano.tensor
        graph, sources, logits = self._network(masked=True)
        labels, divisor = T.vector("labels", "int64"), T.scalar("divisor", "float32")
        loss = T.nnet.crossentropy_softmax_1hot(logits, labels)[0].sum()
        correct = T.eq(T.argmax(logits, axis=1), labels).sum()
        slopes = self._slopes(sources, logits, self._theano.grad(loss / divisor, logits))
        return graph.answering([labels, divisor], [loss, correct, *slopes])

    def _slopes(self, sources: list[Any], output: Any, slope: Any) -> list[Any]:
        if not sources:
            return []
        found: list[Any] = self._theano.grad(None, sources, known_grads={output: slope}, disconnected_inputs="ignore")
        return found

    def forward(self, slot: int, x: Array, masks: Sequence[Array] = ()) -> Array:
        if slot in self._slots:
            raise ValueError(f"slot {slot} is open already: close it before another forward")
        self.check_masks(masks)
        (output,) = self._function("forward" if masks else "infer")(self.weights, x, *masks)
        self._slots[slot] = (x, masks)
        return np.ascontiguousarray(output)

    def backward(self, slot: int, output_gradient: Array) -> Array | None:
        x, masks = self._slots.pop(slot)
        return self._add(self._function("backward")(output_gradient, self.weights, x, *masks))

    def loss_backward(self, slot: int, labels: NDArray[np.int64], divisor: float) -> LossResult:
        return self._loss(*self._slots.pop(slot), labels, divisor)

    def forward_loss_backward(
        self, x: Array, masks: Sequence[Array], labels: NDArray[np.int64], divisor: float
    ) -> LossResult:
        self.check_masks(masks)
        return self._loss(x, masks, labels, divisor)

    def _loss(self, x: Array, masks: Sequence[Array], labels: NDArray[np.int64], divisor: float) -> LossResult:
        given = np.asarray(labels, np.int64), np.float32(divisor)
        loss, correct, *gradients = self._function("loss")(*given, self.weights, x, *masks)
        return LossResult(float(loss), int(correct), self._add(gradients))

    def _add(self, gradients: list[Any]) -> Array | None:
        """Add the parameters' to the flat gradient, return the input's where wanted."""
        input_gradient = np.ascontiguousarray(gradients.pop()) if self.input_gradient else None
        for own, found in zip(self._gradients, gradients, strict=True):
            np.add(own, found, out=own)
        return input_gradient

    def infer(self, x: Array) -> Array:
        (output,) = self._function("infer")(self.weights, x)
        return np.ascontiguousarray(output)

    def describe(self) -> dict[str, Any]:
        return theano_facts()


def replaced_in(output: Any, replaced: Mapping[Any, Any]) -> Any:
    """The expression with others in place of some of its variables."""
    theano = import_theano()
    fitting = theano.tensor.patternbroadcast
    pairs = [(variable, fitting(other, variable.broadcastable)) for variable, other in replaced.items()]
    return theano.clone([output], replace=pairs)[0]


def compiled(graph: Graph, on_compile: Callable[[str], None] | None = None) -> Any:
    """Theano's function. BackendError, in a line, where a module of it cannot be compiled."""
    store = module_store()
    store.on_compile = on_compile
    try:
        return import_theano().function(graph.inputs, graph.outputs, givens=graph.givens, on_unused_input="ignore")
    except Stopped:
        assert store.error is not None
        raise store.error from None
