"""Native layers of Caffe: a layer type and its parameters, as a prototxt file has them.

    Native(backend="caffe", build="PReLU", arguments={"prelu_param": {"channel_shared": False}})

`build` may also be a function, module:attribute or given to set_custom_backend, that returns a LayerParameter.

Caffe ends the process where a layer does not fit, so each is tried first in a process of its own.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpcnn.errors import BackendError
from hpcnn.network.native import Native, NativeTensor
from hpcnn.network.shapes import Shape
from hpcnn.wrappers.caffe_import import import_caffe
from hpcnn.wrappers.caffe_layers import layer_net
from hpcnn.wrappers.caffe_net import TRAIN, CaffeNet
from hpcnn.wrappers.contract import Array
from hpcnn.wrappers.native import (
    PROBE_ROWS,
    check_native,
    found_tensors,
    make_native,
    probe,
    refuse_layer,
    refuse_state,
)

_OF_TRAINING = ("phase", "include", "exclude", "param", "propagate_down", "loss_weight")
"""Fields of any layer that say when it is there and how it is trained."""
_SECONDS = 120
_DIRECTIONS = 4
_STEP = 1e-3
_APART = 0.3
"""How far differences may be from a gradient, relative. Up to 0.05 was seen, where a kink lies within a step; a
backward that does nothing is 1 off."""


def native_text(layer: Native, input_shape: Shape) -> tuple[str, str]:
    """Of hpcnn.wrappers.caffe_layers. BackendError where the layer is not what its spec says."""
    kind, fields = _text(layer)
    tensors, output_shape = _asked(layer, kind, fields, input_shape)
    check_native(layer, {tensor.name: tensor.shape for tensor in tensors}, output_shape)
    return kind, fields


def ask(layer: Native, input_shape: Shape) -> tuple[tuple[NativeTensor, ...], Shape]:
    """A layer's tensors, and the output shape of one sample. BackendError where Caffe or the suite cannot have it."""
    return _asked(layer, *_text(layer), input_shape)


def _text(layer: Native) -> tuple[str, str]:
    """The type, and the text of all other fields but name, bottom and top."""
    if layer.backend != "caffe":
        raise refuse_layer("caffe", layer)
    types = list(import_caffe().layer_type_list())
    message = _own_type(layer) if layer.build in types else _by_function(layer, types)
    others = type(message)()
    others.CopyFrom(message)
    for name in ("name", "type", "bottom", "top"):
        others.ClearField(name)
    for field, _ in others.ListFields():
        if field.name in _OF_TRAINING:
            raise BackendError(
                f"{layer.label}: {layer.build} has {field.name}, by which Caffe chooses what it trains: the suite does "
                "that itself; leave it out"
            )
    return str(message.type), str(others)


def _own_type(layer: Native) -> Any:
    """A LayerParameter, by Caffe's own rules for values in Python (`caffe.layers`)."""
    try:
        make = getattr(import_caffe("net_spec").layers, layer.build)
        return make(**layer.arguments).to_proto().layer[0]
    except (AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
        raise _refusal(layer, f"cannot be made with {layer.arguments}", f"{type(error).__name__}: {error}") from None


def _by_function(layer: Native, types: Sequence[str]) -> Any:
    try:
        made = make_native(layer, "caffe")
    except BackendError as error:
        if ":" in layer.build:
            raise
        near = difflib.get_close_matches(layer.build, types, n=1)
        hint = f"did you mean {near[0]}?" if near else "such as PReLU"
        raise BackendError(f"{error}; or a layer type of Caffe's own, {hint}") from None
    try:
        message = made() if isinstance(made, functools.partial) else made
    except (Exception, SystemExit) as error:
        raise _refusal(layer, f"cannot be made with {layer.arguments}", f"{type(error).__name__}: {error}") from error
    if not isinstance(message, import_caffe("proto.caffe_pb2").LayerParameter):
        gives = f"gives {type(message).__name__}"
        raise _refusal(layer, gives, "a function has to give a LayerParameter of caffe.proto.caffe_pb2")
    return message


def _refusal(layer: Native, what: str, words: str) -> BackendError:
    return BackendError(f"{layer.label}: {layer.build} {what}: {' '.join(words.split())[:300]}")


def _asked(layer: Native, kind: str, fields: str, input_shape: Shape) -> tuple[tuple[NativeTensor, ...], Shape]:
    name = layer.name or layer.short
    plan = layer_net(name, kind, fields, input_shape)
    prototxt = plan.text(name, "one layer")
    if fault := _fault(prototxt):
        raise _refusal(layer, f"cannot be made with {layer.arguments} for rows of {input_shape}", fault)
    nets = [CaffeNet(plan, prototxt, TRAIN) for _ in range(2)]
    values = [_values(net, name) for net in nets]
    rows = np.random.default_rng(0).standard_normal((2, *input_shape)).astype(np.float32)
    nets[0].forward(rows, ())
    after = _values(nets[0], name)
    refuse_state(layer, [one for one in after if not np.array_equal(after[one], values[0][one], equal_nan=True)])
    output_shape = probe(layer, lambda rows: nets[0].forward(rows, ()), input_shape)
    _check_backward(layer, nets[1], name, input_shape)
    return found_tensors(values), output_shape


def _check_backward(layer: Native, net: CaffeNet, name: str, input_shape: Shape) -> None:
    """BackendError where the backward is not the forward's: that of some types (Pad, HardSwish) does nothing at all.

    Held against differences of outputs, in a few directions, of random rows and parameters. Where these have none
    (a logarithm of numbers below 0), differences are NaN and say nothing.
    """
    generator = np.random.default_rng(1)
    blobs = net.parameters(name)
    shapes = [(PROBE_ROWS, *input_shape), *(tuple(blob.data.shape) for blob in blobs)]
    point, *ways = ([generator.standard_normal(shape) for shape in shapes] for _ in range(1 + _DIRECTIONS))

    def output(way: list[Any], step: float) -> Any:
        x, *parameters = (start + step * towards for start, towards in zip(point, way, strict=True))
        for blob, values in zip(blobs, parameters, strict=True):
            blob.data[...] = values
        return net.forward(x.astype(np.float32), ()).astype(np.float64)

    slope = generator.standard_normal(output(ways[0], 0.0).shape)
    net.backward(slope.astype(np.float32))
    gradients = [net.input_gradient(), *(np.array(blob.diff) for blob in blobs)]
    said = [sum(float((g * w).sum()) for g, w in zip(gradients, way, strict=True)) for way in ways]
    seen = [float(((output(way, _STEP) - output(way, -_STEP)) * slope).sum()) / (2 * _STEP) for way in ways]
    if np.linalg.norm(np.subtract(said, seen)) > _APART * np.linalg.norm(seen):
        raise _refusal(layer, "goes backward wrongly, or not at all", "Caffe can use it, but not train through it")


def _values(net: CaffeNet, layer: str) -> dict[str, Array]:
    """A copy of each parameter; Caffe knows them by number."""
    return {f"blob{number}": np.array(blob.data) for number, blob in enumerate(net.parameters(layer))}


@functools.lru_cache
def _fault(prototxt: str) -> str:
    """Why a process that tried the net did not live to its end, in one line; empty where it did."""
    command = [sys.executable, "-m", "hpcnn.wrappers.caffe_try"]
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        tried = subprocess.run(
            command, input=prototxt, env={**os.environ, **paths}, capture_output=True, text=True, errors="replace",
            check=False, timeout=_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it takes more than {_SECONDS} s"
    if tried.returncode == 0:
        return ""
    # glog: level, date, time, thread, file and line; https://github.com/google/glog
    said = re.search(r"^F\d+ .*?\] (.*)$", tried.stderr, re.MULTILINE)
    if said is None and tried.returncode < 0:
        return f"Caffe ended with {signal.Signals(-tried.returncode).name}"
    return (said[1] if said else (tried.stderr.strip() or "?").splitlines()[-1])[:300]
