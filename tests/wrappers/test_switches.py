"""Every switch of a framework does something, and no result leaves the conformance suite's bounds for it."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import numpy as np
import pytest

from hpcnn.backend_options import OPTIONS
from hpcnn.network import Conv2D, MaxPool2D, ReLU, Segment
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.registry import open_backend
from tests.support.kept import INDUCTOR
from tests.support.mpi import run_session
from tests.wrappers.backends import INSTALLED, KERAS_BACKEND
from tests.wrappers.probes import DEEP, assert_answers, network, some_rows, some_weights
from tests.wrappers.segment_reference import Rows

ELSEWHERE = {("torch", "compile")}  # takes half a minute: a test of its own
TRUTHS = [
    (name, item.name, not item.default)
    for name in INSTALLED
    if (name, KERAS_BACKEND) != ("keras", "theano")  # which has none of these switches
    for item in dataclasses.fields(OPTIONS[name])
    if str(item.type) == "bool" and (name, item.name) not in ELSEWHERE
]

POOLED = network(
    Conv2D(filters=3, kernel=3, padding="same"), ReLU(), MaxPool2D(size=(3, 2), stride=(2, 1)), shape=(2, 9, 7)
).whole


def built(backend: str, segment: Segment, weights: Any = None, **options: Any) -> SegmentModel:
    own = some_weights(segment) if weights is None else weights
    return open_backend(backend, options)(segment, own, np.zeros(segment.size, np.float32), input_gradient=True)


def assert_in_bounds(backend: str, **options: Any) -> SegmentModel:
    """The suite's probe of all kinds of layers, and images full of ties; returns the first one's model."""
    model = built(backend, DEEP.whole, **options)
    for count in (5, 2):
        assert_answers(model, some_rows(DEEP.whole, count, seed=count))
    assert_ties_in_bounds(backend, **options)
    return model


def assert_ties_in_bounds(backend: str, **options: Any) -> None:
    weights = np.round(some_weights(POOLED) * 4)  # whole numbers: what ties, ties exactly
    rows = some_rows(POOLED, 3)
    flat = Rows(np.ones_like(rows.x), rows.masks, rows.output_gradient, rows.labels)
    assert_answers(built(backend, POOLED, weights, **options), flat)


@pytest.mark.needs("torch")  # the environment whose backends have such switches
@pytest.mark.parametrize(("backend", "option", "value"), TRUTHS)
def test_results_stay_within_the_suites_bounds(backend: str, option: str, value: bool) -> None:
    model = assert_in_bounds(backend, **{option: value})
    assert getattr(model.options, option) is value
    assert json.loads(json.dumps(dataclasses.asdict(model.options)))[option] is value


@pytest.mark.needs("torch")
def test_torch_keeps_images_in_the_order_that_was_asked_for() -> None:
    for value, said in ((True, "channels_last"), (False, "channels_first")):
        model: Any = built("torch", DEEP.whole, channels_last=value)
        assert model.describe()["memory_format"] == said
        held = model._input(some_rows(DEEP.whole, 2).x)
        assert (held.stride(1) == 1) is value


@pytest.mark.needs("torch")
def test_torch_compiles_where_a_compiler_is_and_answers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in INDUCTOR.items():
        monkeypatch.setenv(name, value)
    assert_ties_in_bounds("torch", compile=True)
    assert "torch._inductor.codecache" in sys.modules


@pytest.mark.needs("tensorflow")
def test_tensorflow_runs_compiled_by_xla_or_operation_by_operation_as_asked() -> None:
    import tensorflow

    x = tensorflow.ones((2, *DEEP.input_shape))
    for options, kind in (({}, "graph"), ({"jit_compile": True}, "xla"), ({"function": False}, "eager")):
        model: Any = built("tensorflow", DEEP.whole, **options)
        run = model._inference
        assert hasattr(run, "get_concrete_function") is (kind != "eager")
        if kind == "xla":
            text = run.experimental_get_compiler_ir(tensorflow.constant(model.weights), x)(stage="hlo")
            assert text.startswith("HloModule")
        elif kind == "graph":
            with pytest.raises(ValueError, match="jit_compile"):
                run.experimental_get_compiler_ir(tensorflow.constant(model.weights), x)


DETERMINISM = """
from hpcnn.wrappers.registry import open_backend
for value in (False, True):
    open_backend(%r, {"deterministic": value}, threads=1)
    import tensorflow as tf
    try:
        tf.image.sample_distorted_bounding_box([8, 8, 1], [[[0.0, 0.0, 1.0, 1.0]]])  # drawn without a seed
        print(value, "takes what comes")
    except ValueError as error:
        print(value, "refuses" if "determinism" in str(error) else error)
"""


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("backend", ["tensorflow", "keras"])
def test_tensorflow_refuses_what_is_not_repeatable_unless_told_not_to(backend: str) -> None:
    run = run_session([sys.executable, "-c", DETERMINISM % backend])
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["False takes what comes", "True refuses"]
