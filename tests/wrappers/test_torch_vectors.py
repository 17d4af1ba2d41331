"""Weights and gradient as copies on a device give what shared memory gives, to the bit; a CPU is the other device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hpcnn.errors import BackendError
from hpcnn.network import Segment
from hpcnn.wrappers.registry import get_segment_class, open_backend
from tests.mpi.digits import write_digits
from tests.support.pool import on_ranks, results
from tests.wrappers.backends import INSTALLED
from tests.wrappers.fused_on_ranks import fused_steps
from tests.wrappers.probes import DEEP, MIDDLE, some_rows, some_weights

pytestmark = pytest.mark.needs("torch")


@contextlib.contextmanager
def placed_as_copies() -> Iterator[None]:
    """torch's segments compute as with --device cuda, but on the CPU."""
    import torch

    from hpcnn.wrappers.torch_vectors import Copied
    from hpcnn.wrappers.torch_wrapper import TorchSegment

    def on_copies(cls: Any, device: str) -> None:
        cls.place_vectors = lambda weights, gradient: Copied(weights, gradient, torch.device("cpu"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TorchSegment, "use_device", classmethod(on_copies))
        yield
    open_backend("torch")


def answers(segment: Segment, order: str) -> list[Any]:
    """Everything that the calls of `order` return and leave; weights change in between, as by an update."""
    weights, gradient = some_weights(segment), np.zeros(segment.size, np.float32)
    model = open_backend("torch")(segment, weights, gradient, input_gradient=True)
    found: list[Any] = [model.describe()["device"]]
    for number, (kind, slot) in enumerate(order.split()):
        rows = some_rows(segment, 3 + int(slot), seed=int(slot))
        if kind == "F":
            found.append(model.forward(int(slot), rows.x, rows.masks))
        elif kind == "I":
            found.append(model.backward_input(int(slot), rows.output_gradient))
        elif kind == "W":
            model.backward_weights(int(slot))
        elif kind == "L":
            result = model.loss_backward(int(slot), rows.labels, 7.0)
            found += [result.loss_sum, result.correct, result.input_gradient]
        elif kind == "B":
            found.append(model.backward(int(slot), rows.output_gradient))
        elif kind == "U":
            weights -= np.float32(0.1) * gradient
            gradient.fill(0.0)
        found += [gradient.copy(), model.infer(some_rows(segment, 2, seed=number).x)]
    return found


@pytest.mark.parametrize(
    ("segment", "order"),
    [(MIDDLE, "F1 F2 B2 U0 F3 B1 B3"), (MIDDLE, "F1 F2 I2 I1 W1 U0 W2"), (DEEP.whole, "F1 F2 L2 F3 L1 U0 L3 F1 L1")],
)
def test_every_answer_is_the_same(segment: Segment, order: str) -> None:
    expected = answers(segment, order)
    with placed_as_copies():
        found = answers(segment, order)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)


def test_ddp_adds_where_the_copies_are(tmp_path: Any) -> None:
    csv = str(write_digits(tmp_path))
    for shares, count in (("uneven", 3), ("first_without", 1)):
        expected = results(on_ranks(2, fused_steps, csv, "torch", shares, count, limit=300.0))
        found = results(on_ranks(2, _on_copies, csv, shares, count, limit=300.0))
        for one, other in zip(found, expected, strict=True):
            assert one.alike
            # sums of micro-batches pass through one more addition: to where the others are, and back
            assert np.allclose(one.gradients, other.gradients, rtol=1e-5, atol=1e-7)
            assert np.allclose(one.losses, other.losses, rtol=1e-5)


def _on_copies(comm: Any, csv: str, shares: str, count: int) -> Any:
    with placed_as_copies():
        return fused_steps(comm, csv, "torch", shares, count)


@pytest.mark.parametrize("backend", [name for name in INSTALLED if name not in ("torch", "tensorflow")])
def test_others_compute_on_cpus_alone(backend: str) -> None:
    with pytest.raises(BackendError, match=f"--device cuda: {backend} computes on CPUs alone here: leave --device out"):
        get_segment_class(backend).use_device("cuda")


@pytest.mark.parametrize("backend", [name for name in INSTALLED if name in ("torch", "tensorflow")])
def test_a_framework_without_cuda_is_refused_with_what_brings_one(backend: str) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BackendError, match=r"sees no GPU: .*constraints-modern-cuda.txt bash env/create.sh, or leave"):
        get_segment_class(backend).use_device("cuda")
