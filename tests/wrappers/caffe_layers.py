"""Layers of one's own for Caffe, for the tests of native layers: functions that give one's description."""

from __future__ import annotations

from typing import Any

from caffe.proto.caffe_pb2 import LayerParameter


def convolution(filters: int, size: int) -> Any:
    """What nobody would write: a convolution that we have already, so that answers can be compared."""
    layer = LayerParameter(type="Convolution")
    layer.convolution_param.num_output = filters
    layer.convolution_param.kernel_size.append(size)
    layer.convolution_param.weight_filler.type = "xavier"
    return layer


def gives_a_number() -> Any:
    return 3


def leaves() -> Any:
    raise SystemExit(3)
