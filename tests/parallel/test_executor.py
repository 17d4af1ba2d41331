"""One rank's step: what is asked of the model, in which order, and what is left in the vectors."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hpcnn.parallel.executor import STATISTICS, FlatVectors
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.inject import injected_divisor
from hpcnn.parallel.program import Kind, Operation, program_text
from hpcnn.parallel.strategies import make_program
from tests.parallel.ledger import NETWORK, Rank, joined, whole_rows

Array = Any


class OtherRanks:
    """A communicator whose Allreduce adds what other ranks have sent, and keeps what this one sends."""

    def __init__(self, *messages: Array) -> None:
        self.messages, self.sent = messages, []

    def Allreduce(self, sendbuf: Any, recvbuf: Array, op: Any) -> None:
        assert (sendbuf, op) == ("in place", "sum")
        self.sent.append(recvbuf.copy())
        for message in self.messages:
            recvbuf += message


@pytest.fixture(autouse=True)
def _mpi_without_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the executor takes from mpi4py, so that no MPI starts in the tests' process."""
    constants = SimpleNamespace(IN_PLACE="in place", SUM="sum")
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=constants))


def test_a_message_is_the_gradient_with_the_statistics_behind_it_in_aligned_memory() -> None:
    vectors = FlatVectors(NETWORK.whole)
    assert vectors.message.shape == (NETWORK.size + STATISTICS,)
    vectors.message[:] = np.arange(vectors.message.size)
    assert vectors.gradient.tolist() == list(range(NETWORK.size))
    assert vectors.statistics.tolist() == [NETWORK.size, NETWORK.size + 1]
    for vector in (vectors.weights, vectors.message, vectors.gradient):
        assert vector.ctypes.data % 64 == 0
        assert vector.dtype == np.float32


def test_operations_are_carried_out_in_the_programs_order() -> None:
    rank = Rank("F0.0 F0.2 L0.2 F0.1 L0.1 L0.0 U0")
    rank.executor.step(whole_rows(4, global_row_count=9), 0.1)
    assert rank.model.calls == [
        ("forward", 0, [0.0]),
        ("forward", 2, [2.0, 3.0]),
        ("loss", 2, [3, 1], 9.0),
        ("forward", 1, [1.0]),
        ("loss", 1, [2], 9.0),
        ("loss", 0, [1], 9.0),
    ]


def test_micro_batches_beyond_the_rows_compute_nothing() -> None:
    rank = Rank(program_text(make_program("single", Grid(dp=1), 0, 5)))
    rank.executor.step(whole_rows(2, global_row_count=2), 0.1)
    assert [call[:2] for call in rank.model.calls] == [("forward", 2), ("loss", 2), ("forward", 4), ("loss", 4)]


@pytest.mark.parametrize("micro_batches", range(1, 8))
def test_any_number_of_micro_batches_gives_the_same_sums(micro_batches: int) -> None:
    # Divided by 4, whole numbers stay exact.
    batch = whole_rows(5, global_row_count=4)
    whole, cut = Rank("F0.0 L0.0 U0"), Rank(program_text(make_program("single", Grid(dp=1), 0, micro_batches)))
    results = [rank.executor.step(batch, 0.5) for rank in (whole, cut)]
    assert results[0] == results[1]
    assert np.array_equal(whole.vectors.message, cut.vectors.message)
    assert np.array_equal(whole.vectors.weights, cut.vectors.weights)
    assert whole.vectors.gradient.any()


def test_a_step_divides_by_the_rows_of_the_global_batch_once_and_updates() -> None:
    batch = whole_rows(3, global_row_count=8)
    rank = Rank("F0.0 L0.0 F0.1 L0.1 U0")
    result = rank.executor.step(batch, 0.5)
    expected = (batch.x.reshape(3, 4) * batch.masks[0] * batch.labels[:, None]).sum(axis=0) / 8
    assert rank.vectors.gradient[:4].tolist() == expected.tolist()
    assert rank.vectors.weights[:4].tolist() == (-0.5 * expected).tolist()
    assert (result.loss, result.accuracy) == (batch.x.sum() / 8, 3 / 8)
    assert result.gradient_norm == pytest.approx(np.linalg.norm(expected), rel=1e-6)  # float32 squares of 4 numbers
    assert rank.optimizer.updates == 1


def test_a_step_starts_from_zero() -> None:
    batch, other = whole_rows(3, global_row_count=4), whole_rows(2, global_row_count=4, first=7)
    twice, once = Rank("F0.0 L0.0 U0"), Rank("F0.0 L0.0 U0")
    twice.executor.step(other, 0.0)
    assert twice.executor.step(batch, 0.0) == once.executor.step(batch, 0.0)
    assert np.array_equal(twice.vectors.message, once.vectors.message)


def test_statistics_are_exact_to_the_last_row() -> None:
    rank = Rank("F0.0 L0.0 F0.1 L0.1 F0.2 L0.2 U0")
    batch = whole_rows(3, global_row_count=2**24 - 1)
    rank.model.correct_a_row = (2**24 - 1) // 3  # float32 counts up to 2**24
    assert rank.executor.step(batch, 0.0).accuracy == 1.0
    assert rank.vectors.statistics[1] == 2**24 - 1


def test_the_norm_is_measured_only_where_asked() -> None:
    batch = whole_rows(3, global_row_count=4)
    assert math.isnan(Rank("F0.0 L0.0 U0", measure_norm=False).executor.step(batch, 0.1).gradient_norm)
    assert Rank("F0.0 L0.0 U0", measure_norm=True).executor.step(batch, 0.1).gradient_norm > 0


def test_a_rank_without_rows_sends_zeros_and_makes_the_same_update() -> None:
    others = np.arange(NETWORK.size + STATISTICS, dtype=np.float32)
    comm = OtherRanks(others)
    rank = Rank("F0.0 L0.0 F0.1 L0.1 R0 U0", comm=comm)
    result = rank.executor.step(whole_rows(0, global_row_count=16), 0.5)
    assert rank.model.calls == []
    assert [message.tolist() for message in comm.sent] == [[0.0] * (NETWORK.size + STATISTICS)]
    assert rank.vectors.weights.tolist() == (-0.5 * others[: NETWORK.size]).tolist()
    assert (result.loss, result.accuracy) == (others[-2] / 16, others[-1] / 16)
    assert result.gradient_norm == pytest.approx(np.linalg.norm(others[: NETWORK.size]), rel=1e-6)


def messages(batches: list[Any], divisor: Any = None) -> list[Array]:
    """What each rank sends for its part of a batch."""
    sent = []
    for batch in batches:
        comm = OtherRanks()
        options = {} if divisor is None else {"divisor": divisor}
        Rank("F0.0 L0.0 F0.1 L0.1 R0 U0", comm=comm, **options).executor.step(batch, 0.0)
        sent += comm.sent
    return sent


def test_ranks_with_unequal_rows_add_up_to_one_process() -> None:
    parts = [whole_rows(count, global_row_count=8, first=10 * count) for count in (3, 0, 1, 4)]
    alone = Rank("F0.0 L0.0 U0")
    alone.executor.step(joined(parts), 0.0)
    assert np.array_equal(sum(messages(parts)), alone.vectors.message)


def test_the_reduced_gradient_is_what_updates() -> None:
    parts = [whole_rows(count, global_row_count=8, first=10 * count) for count in (3, 5)]
    alone = Rank("F0.0 L0.0 U0")
    expected = alone.executor.step(joined(parts), 0.25)
    theirs = messages(parts)[1]
    rank = Rank("F0.0 L0.0 F0.1 L0.1 R0 U0", comm=OtherRanks(theirs))
    assert rank.executor.step(parts[0], 0.25) == expected
    assert np.array_equal(rank.vectors.weights, alone.vectors.weights)


@pytest.mark.parametrize(("fault", "ratio"), [("sum-without-mean", 4.0), ("mean-twice", 0.25)])
def test_an_injected_fault_is_off_by_the_number_of_ranks_and_leaves_the_loss(fault: str, ratio: float) -> None:
    parts = [whole_rows(2, global_row_count=8, first=rank) for rank in range(4)]
    right, wrong = sum(messages(parts)), sum(messages(parts, injected_divisor(fault, 4)))
    assert np.array_equal(wrong[:-STATISTICS], ratio * right[:-STATISTICS])
    assert np.array_equal(wrong[-STATISTICS:], right[-STATISTICS:])


def test_a_step_is_timed_phase_by_phase() -> None:
    rank = Rank("F0.0 L0.0 F0.1 L0.1 R0 U0", comm=OtherRanks())
    rank.clock.switch("load")
    rank.executor.step(whole_rows(3, global_row_count=3), 0.1)
    assert rank.clock.phase == "other"
    rank.clock.resolve_waits(None)
    counts = {phase: (tally.count, tally.bytes) for _, phase, tally in rank.clock.rows()}
    assert counts["forward"] == (2, 0)
    assert counts["update"] == (1, 0)
    assert counts["communicate"] == (1, 4 * (NETWORK.size + STATISTICS))
    assert {"forward", "backward", "communicate", "wait", "update"} <= set(counts)
    seconds = sum(tally.seconds for _, _, tally in rank.clock.rows())
    assert seconds == pytest.approx(rank.clock.wall_seconds(), rel=0.02)


def test_an_operation_on_rows_without_a_micro_batch_is_a_defect() -> None:
    rank = Rank("U0")
    with pytest.raises(ValueError, match="F0 has no micro-batch"):
        rank.executor._forward(Operation(Kind.FORWARD, 0), whole_rows(1, 1), 0.0)
