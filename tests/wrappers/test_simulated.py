"""The backend that computes nothing: right shapes, slots as the contract has them, time as it was told, and said so."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcnn.network import Segment
from hpcnn.wrappers.contract import SegmentModel
from hpcnn.wrappers.registry import open_backend
from tests.support.mpi import run_ranks, run_session
from tests.training.results import manifest, numbers
from tests.wrappers.probes import DEEP, MIDDLE, some_rows, some_weights

LAST = DEEP.segment(9, len(DEEP.layers))
SECONDS = 0.03
OPEN = 'from hpcnn.wrappers.registry import open_backend; open_backend("simulated", threads=1)'


def built(segment: Segment, **options: Any) -> SegmentModel:
    given = {"forward_seconds": 0.0, **options}
    return open_backend("simulated", given)(segment, some_weights(segment), np.ones(segment.size, np.float32))


@pytest.mark.parametrize("segment", [DEEP.whole, MIDDLE, LAST], ids=["whole", "middle", "last"])
@pytest.mark.parametrize("halves", [False, True])
def test_what_crosses_the_contract_has_the_shapes_that_computing_gives(segment: Segment, halves: bool) -> None:
    model = built(segment)
    model.check_split()
    rows = some_rows(segment, 3)
    output = model.forward(7, rows.x, rows.masks)
    assert (output.shape, output.dtype) == ((3, *segment.output_shape), np.float32)
    assert model.infer(rows.x).shape == output.shape
    if segment.is_last:
        loss = (model.loss_backward_input if halves else model.loss_backward)(7, rows.labels, 3.0)
        assert loss.loss_sum == pytest.approx(3 * math.log(DEEP.num_classes))
        assert loss.correct == np.count_nonzero(rows.labels == 0)
        gradient = loss.input_gradient
    else:
        gradient = (model.backward_input if halves else model.backward)(7, output)
    if halves:
        model.backward_weights(7)
    assert (gradient is None) == segment.is_first
    if gradient is not None:
        assert (gradient.shape, gradient.dtype) == (rows.x.shape, np.float32)
    assert (model.gradient == 1).all()
    assert (model.weights == some_weights(segment)).all()


def test_any_number_of_slots_is_open_each_with_its_own_rows() -> None:
    model = built(MIDDLE)
    rows = {slot: some_rows(MIDDLE, slot) for slot in (1, 2, 5)}
    outputs = {slot: model.forward(slot, one.x, one.masks) for slot, one in rows.items()}
    for slot in (2, 5, 1):
        gradient = model.backward(slot, outputs[slot])
        assert gradient is not None
        assert len(gradient) == slot


def test_a_slot_that_is_not_as_a_call_wants_it_is_refused_and_stays() -> None:
    model = built(MIDDLE)
    rows = some_rows(MIDDLE, 2)
    output = model.forward(1, rows.x, rows.masks)
    with pytest.raises(ValueError, match="slot 1 is open already"):
        model.forward(1, rows.x, rows.masks)
    with pytest.raises(ValueError, match="dropouts"):
        model.forward(2, rows.x, ())
    for call in (model.backward, model.backward_input):
        with pytest.raises(KeyError):
            call(2, output)
    with pytest.raises(KeyError):
        model.backward_weights(1)
    model.backward_input(1, output)
    for call in (model.backward, model.backward_input):
        with pytest.raises(KeyError):
            call(1, output)
    model.backward_weights(1)
    with pytest.raises(KeyError):
        model.backward_weights(1)


def seconds_of(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_a_call_takes_at_least_the_time_it_was_told() -> None:
    # how much longer is the machine's business, and no test's
    model = built(LAST, forward_seconds=SECONDS, backward_ratio=3.0)
    rows = some_rows(LAST, 2)
    assert seconds_of(lambda: model.forward(0, rows.x, rows.masks)) >= SECONDS
    assert seconds_of(lambda: model.loss_backward(0, rows.labels, 2.0)) >= 3 * SECONDS
    assert seconds_of(lambda: model.forward(0, rows.x, rows.masks)) >= SECONDS
    assert seconds_of(lambda: model.loss_backward_input(0, rows.labels, 2.0)) >= 1.5 * SECONDS
    assert seconds_of(lambda: model.backward_weights(0)) >= 1.5 * SECONDS
    assert seconds_of(lambda: model.infer(rows.x)) >= SECONDS
    middle = built(MIDDLE, forward_seconds=SECONDS)
    x = some_rows(MIDDLE, 1)
    output = middle.forward(0, x.x, x.masks)
    assert seconds_of(lambda: middle.backward(0, output)) >= 2 * SECONDS


def test_the_time_runs_from_the_call_whatever_it_does_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of its own counts in: what is left to sleep is what the clock says, and nothing where that is over."""
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("hpcnn.wrappers.simulated_wrapper.time.monotonic", lambda: now[0])
    monkeypatch.setattr("hpcnn.wrappers.simulated_wrapper.time.sleep", sleep)
    model: Any = built(MIDDLE, forward_seconds=1.0)
    monkeypatch.setattr(model, "check_masks", lambda masks: now.__setitem__(0, now[0] + 0.25))
    model.forward(0, some_rows(MIDDLE, 1).x)
    monkeypatch.setattr(model, "check_masks", lambda masks: now.__setitem__(0, now[0] + 4.0))
    model.forward(1, some_rows(MIDDLE, 1).x)
    assert slept == [0.75]


def test_a_signal_does_not_cut_a_call_short() -> None:
    model = built(MIDDLE, forward_seconds=0.2)
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        assert seconds_of(lambda: model.forward(0, some_rows(MIDDLE, 1).x, some_rows(MIDDLE, 1).masks)) >= 0.2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_run_says_that_nothing_was_computed(tmp_path: Path) -> None:
    flags = ["train", "--network", "jobs/small_network.toml", "--train", "data/test.csv", "--backend", "simulated",
             "--backend-option", "forward_seconds=0.001", "--strategy", "pipeline", "--grid", "pp=2",
             "--schedule", "zero-bubble", "--micro-batches", "3", "--global-batch", "100", "--epochs", "1",
             "--max-steps", "2", "--no-progress", "--out", str(tmp_path), "--run-id", "run"]  # fmt: skip
    run = run_ranks(2, ["-m", "hpcnn", *flags])
    assert run.returncode == 0, run.stderr
    said = "warning: --backend simulated computes nothing: times are what it was told, losses mean nothing"
    assert run.stdout.splitlines().count(said) == 1
    found = manifest(tmp_path / "run")
    assert found["backend"]["computes"] == "nothing: calls sleep"
    assert found["backend"]["options"] == {"forward_seconds": 0.001, "backward_ratio": 2.0}
    assert numbers(tmp_path / "run", "train_loss") == pytest.approx([math.log(10)] * 2)


def test_it_imports_no_framework() -> None:
    run = run_session([sys.executable, "-c", f"import sys\n{OPEN}\nprint(*sys.modules)"])
    assert run.returncode == 0, run.stderr
    loaded = set(run.stdout.split())
    assert "hpcnn.wrappers.simulated_wrapper" in loaded
    assert not loaded & {"torch", "tensorflow", "keras", "theano", "lasagne", "caffe", "jax", "mpi4py"}


def test_the_list_of_backends_has_it_as_what_it_is() -> None:
    run = run_session([sys.executable, "-m", "hpcnn", "backends"])
    lines = run.stdout.splitlines()
    assert "simulated     ready (computes nothing, needs nothing)" in lines
    assert any(line.startswith("    forward_seconds = 0.02") for line in lines)
