"""What every wrapper refuses and declares."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hpcnn.errors import BackendError
from hpcnn.network import Layer
from hpcnn.wrappers.contract import Capabilities, SegmentModel
from hpcnn.wrappers.registry import get_segment_class
from tests.wrappers.backends import EVERY_BACKEND
from tests.wrappers.probes import DEEP, MIDDLE, build, network, some_rows

pytestmark = EVERY_BACKEND


@dataclass(frozen=True, kw_only=True)
class Unheard(Layer):
    """A layer that keeps shapes and that no backend knows."""


Unheard.type_name, Unheard.short = "unheard", "unheard"


def test_a_layer_that_the_backend_does_not_know_is_refused_by_name(backend: str) -> None:
    architecture = network(Unheard(name="odd"))
    with pytest.raises(BackendError, match=rf"{backend}.*unheard 'odd'"):
        build(backend, architecture.whole)


SIZE = MIDDLE.size


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros(SIZE + 1, np.float32),
        np.zeros(SIZE - 1, np.float32),
        np.zeros(SIZE, np.float64),
        np.zeros((1, SIZE), np.float32),
        np.zeros(2 * SIZE, np.float32)[::2],
    ],
    ids=["long", "short", "float64", "two axes", "with gaps"],
)
@pytest.mark.parametrize("name", ["weights", "gradient"])
def test_vectors_of_another_form_are_refused(backend: str, name: str, vector: Any) -> None:
    right = {"weights": np.zeros(SIZE, np.float32), "gradient": np.zeros(SIZE, np.float32)}
    with pytest.raises(ValueError, match=rf"{name} must be contiguous float32\[{SIZE}\], not {vector.dtype}"):
        get_segment_class(backend)(MIDDLE, **{**right, name: vector})


def test_a_slot_that_is_not_open_cannot_be_closed(backend: str) -> None:
    rows, ends = some_rows(MIDDLE, 2), some_rows(DEEP.whole, 2)
    middle, whole = build(backend, MIDDLE), build(backend, DEEP.whole)
    middle.forward(1, rows.x, rows.masks)
    middle.infer(rows.x)
    with pytest.raises(KeyError):
        middle.backward(0, rows.output_gradient)
    with pytest.raises(KeyError):
        whole.loss_backward(0, ends.labels, 2)
    middle.backward(1, rows.output_gradient)
    with pytest.raises(KeyError):
        middle.backward(1, rows.output_gradient)


def test_a_wrapper_declares_its_capabilities_and_describes_its_settings(backend: str) -> None:
    segment_class = get_segment_class(backend)
    assert issubclass(segment_class, SegmentModel)
    assert isinstance(segment_class.capabilities, Capabilities)
    assert all(isinstance(value, bool) for value in dataclasses.astuple(segment_class.capabilities))
    settings = build(backend, MIDDLE).describe()
    assert settings
    assert json.loads(json.dumps(settings)) == settings  # it goes into run.json as it is
