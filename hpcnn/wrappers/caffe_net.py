"""One Caffe net: its blobs as NumPy arrays, for any number of rows, its parameters its own or another net's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcnn.errors import BackendError
from hpcnn.wrappers.caffe_import import import_caffe
from hpcnn.wrappers.caffe_prototxt import MOST_IN_A_BLOB, NetText
from hpcnn.wrappers.contract import Array

TRAIN, TEST = 0, 1
"""Values of Phase in caffe.proto."""
_LOWEST = np.float32(np.finfo(np.float32).min)


class CaffeNet:
    """The net `plan`, of which `prototxt` is the text. `like`: one whose parameters it shares."""

    def __init__(self, plan: NetText, prototxt: str, phase: int, like: CaffeNet | None = None) -> None:
        self._plan = plan
        self._net = load(prototxt, phase)
        if like is not None:
            self._net.share_with(like._net)
        self._blobs = dict(zip(self._net._blob_names, self._net._blobs, strict=True))
        self._layers = dict(zip(self._net._layer_names, self._net.layers, strict=True))
        self._lost: NDArray[np.bool_] | None = None
        self.rows = 1

    def parameters(self, layer: str) -> list[Any]:
        """A layer's blobs, with data and diff: kernel and bias, or a native layer's in its own order."""
        return list(self._layers[layer].blobs)

    def fit(self, rows: int) -> None:
        """Make room for so many rows, not for more. BackendError where they are too many for Caffe."""
        if rows == self.rows:
            return
        if rows * self._plan.largest > MOST_IN_A_BLOB:
            raise BackendError(
                f"Caffe computes at most {MOST_IN_A_BLOB // self._plan.largest} rows of this network at once, not "
                f"{rows}: take a smaller batch, or micro-batches"
            )
        for name, shape in self._plan.inputs:
            self._blobs[name].reshape(rows, *shape)  # the other blobs follow in the next forward
        self.rows = rows

    def forward(self, x: Array, masks: Sequence[Array]) -> Array:
        """The output, as `output` gives it. BackendError as of `fit`."""
        self.fit(len(x))
        for (name, _), values in zip(self._plan.inputs, (x, *masks), strict=True):
            self._blobs[name].data[...] = values
        self._net._forward(0, len(self._layers) - 1)
        self._lost = self._lost_rows()
        return self.output()

    def output(self) -> Array:
        """Of the forward before, as a copy; NaN in the rows that are lost."""
        output: Array = np.array(self._blobs[self._plan.output].data)
        if self._lost is not None:
            output[self._lost] = np.nan
        return output

    def _lost_rows(self) -> NDArray[np.bool_] | None:
        """Rows of which a pool was given NaN, or found no maximum in a window; or None.

        A Caffe max pool passes over NaN, and what it gives then looks like any other number. From a window of nothing
        above the lowest number it gives that; and its backward writes in front of the image, outside of its memory.
        """
        lost = None
        for before, behind in self._plan.pools:
            given, pooled = self._blobs[before].data, self._blobs[behind].data
            if not given.min() > _LOWEST:  # NaN, if any is
                found = np.isnan(given).reshape(self.rows, -1).any(axis=1)
                found |= (pooled == _LOWEST).reshape(self.rows, -1).any(axis=1)
                lost = found if lost is None else lost | found
        return lost

    def backward(self, slope: Array) -> None:
        """From the output's gradient, to those of the parameters (the old ones are cleared) and of the data."""
        self._net.clear_param_diffs()
        self._blobs[self._plan.output].diff[...] = slope
        if self._lost is None:
            self._net._backward(len(self._layers) - 1, 0)
            return
        for blob in (self._blobs[self._plan.data], *(one for layer in self._layers.values() for one in layer.blobs)):
            blob.diff[...] = np.nan

    def input_gradient(self) -> Array:
        """Of the backward before, as a copy; of a net that is forced."""
        return np.array(self._blobs[self._plan.data].diff)


def load(prototxt: str, phase: int) -> Any:
    """A Net of pycaffe, which reads files alone: this one is in memory, so that no full disk stands in its way."""
    with open(os.memfd_create("prototxt"), "w", encoding="ascii") as file:
        file.write(prototxt)
        file.flush()
        return import_caffe().Net(f"/proc/self/fd/{file.fileno()}", phase)
