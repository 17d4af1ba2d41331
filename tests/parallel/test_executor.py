"""One rank's step: what is asked of the model, in which order, and what is left in the vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hpcnn.network import Architecture, Dense, Flatten, Softmax
from hpcnn.parallel.grid import Grid
from hpcnn.parallel.parts import STATISTICS, FlatVectors, LocalBatch
from hpcnn.parallel.program import Kind, Operation, program_text
from hpcnn.parallel.strategies import make_program
from tests.parallel.recorder import (
    NETWORK,
    START,
    Rank,
    Step,
    assert_is_the_sum_over,
    batch_of,
    parts_of,
    step_on_rank,
)
from tests.support.pool import on_ranks, results

SUM = 1e-6
"""Relative: float32 squares of 15 numbers, each of 16 roundings at most 2**-24, and the root halves it: 5e-7."""


def steps(parts: Sequence[LocalBatch], rate: float, fault: str | None = None) -> list[Step]:
    """One step of as many real ranks as there are parts of a batch."""
    return results(on_ranks(len(parts), step_on_rank, parts, rate, fault))


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
    rank, batch = Rank("F0.0 F0.2 L0.2 F0.1 L0.1 L0.0 U0"), batch_of(4, global_row_count=9)
    rank.executor.step(batch, 0.1)
    assert rank.model.calls == [
        ("forward", 0, [0.0]),
        ("forward", 2, [2.0, 3.0]),
        ("loss", 2, [2, 0], 9.0),
        ("forward", 1, [1.0]),
        ("loss", 1, [1], 9.0),
        ("loss", 0, [0], 9.0),
    ]
    assert_is_the_sum_over(batch, rank.vectors.message)


def test_a_forward_right_before_its_loss_is_one_call_with_it_where_the_backend_says_so() -> None:
    batch = batch_of(4, global_row_count=9)
    rank = Rank("F0.0 L0.0 F0.1 F0.2 L0.2 L0.1 F0.3 L0.3 U0", fuses_loss=True)
    rank.executor.step(batch, 0.1)
    assert rank.model.calls == [
        ("both", [0], 9.0),
        ("forward", 1, [1.0]),
        ("both", [2], 9.0),
        ("loss", 1, [1], 9.0),
        ("both", [0], 9.0),
    ]
    assert_is_the_sum_over(batch, rank.vectors.message)
    counts = {phase: tally.count for _, phase, tally in rank.clock.rows()}
    assert (counts["gradient"], counts["forward"], counts["backward"]) == (3, 1, 1)
    idle = Rank("F0.0 L0.0 U0", fuses_loss=True)
    idle.executor.step(batch_of(0, global_row_count=2), 0.1)
    assert idle.model.calls == []
    assert not idle.vectors.message.any()


def test_micro_batches_beyond_the_rows_compute_nothing() -> None:
    rank = Rank(program_text(make_program("single", Grid(dp=1), 0, 5)))
    rank.executor.step(batch_of(2, global_row_count=2), 0.1)
    assert [call[:2] for call in rank.model.calls] == [("forward", 2), ("loss", 2), ("forward", 4), ("loss", 4)]


@pytest.mark.parametrize("micro_batches", range(1, 8))
def test_any_number_of_micro_batches_gives_the_same_sums(micro_batches: int) -> None:
    batch = batch_of(5, global_row_count=4)
    rank = Rank(program_text(make_program("single", Grid(dp=1), 0, micro_batches)))
    rank.executor.step(batch, 0.5)
    assert_is_the_sum_over(batch, rank.vectors.message)
    forwards = [call for call in rank.model.calls if call[0] == "forward"]
    assert len(forwards) == min(micro_batches, 5)
    assert [number for _, _, numbers in forwards for number in numbers] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_step_divides_by_the_rows_of_the_global_batch_once_and_updates() -> None:
    batch = batch_of(3, global_row_count=8)
    rank = Rank("F0.0 L0.0 F0.1 L0.1 U0")
    result = rank.executor.step(batch, 0.5)
    assert [call[-1] for call in rank.model.calls if call[0] == "loss"] == [8.0, 8.0]
    assert_is_the_sum_over(batch, rank.vectors.message)
    gradient, (loss_sum, correct) = rank.vectors.gradient, rank.vectors.statistics
    assert np.array_equal(rank.vectors.weights, START - np.float32(0.5) * gradient)
    assert (result.loss, result.accuracy) == (float(loss_sum) / 8, float(correct) / 8)
    assert result.gradient_norm == pytest.approx(np.linalg.norm(gradient.astype(np.float64)), rel=SUM)
    assert rank.optimizer.updates == 1


def test_a_step_starts_from_zero() -> None:
    batch, other = batch_of(3, global_row_count=4), batch_of(2, global_row_count=4, first=7)
    twice, once = Rank("F0.0 L0.0 U0"), Rank("F0.0 L0.0 U0")
    twice.executor.step(other, 0.0)
    assert twice.executor.step(batch, 0.0) == once.executor.step(batch, 0.0)
    assert np.array_equal(twice.vectors.message, once.vectors.message)


def test_statistics_are_exact_to_the_last_row() -> None:
    rows = 2**24 - 1  # float32 counts up to 2**24
    one_pixel = Architecture("one pixel", (1, 1, 1), (Flatten(), Dense(units=2), Softmax()))
    rank = Rank(program_text(make_program("single", Grid(dp=1), 0, 256)), network=one_pixel)
    # A black pixel's logits are the two biases, 0, and the first of equal ones is row after row the right one.
    batch = LocalBatch(np.zeros((rows, 1, 1, 1), np.float32), np.zeros(rows, np.int64), [], rows)
    assert rank.executor.step(batch, 0.0).accuracy == 1.0
    assert rank.vectors.statistics[1] == rows


def test_the_norm_is_measured_only_where_asked() -> None:
    batch = batch_of(3, global_row_count=4)
    assert math.isnan(Rank("F0.0 L0.0 U0", measure_norm=False).executor.step(batch, 0.1).gradient_norm)
    assert Rank("F0.0 L0.0 U0", measure_norm=True).executor.step(batch, 0.1).gradient_norm > 0


def test_a_rank_without_rows_sends_zeros_and_makes_the_same_update() -> None:
    parts = parts_of([0, 5, 0])
    (alone,) = steps([parts[1]], 0.5)
    for rank, step in enumerate(steps(parts, 0.5)):
        assert step.calls == (alone.calls if rank == 1 else [])
        # Zeros added change no bit.
        assert np.array_equal(step.message, alone.message)
        assert np.array_equal(step.weights, alone.weights)
        assert (step.result, step.updates) == (alone.result, 1)
    assert alone.result.loss > 0


def test_where_no_rank_has_rows_the_message_is_zeros() -> None:
    for step in steps([batch_of(0, global_row_count=16)] * 2, 0.5):
        assert step.calls == []
        assert step.message.tolist() == [0.0] * (NETWORK.size + STATISTICS)
        assert np.array_equal(step.weights, START)


def test_ranks_with_unequal_rows_add_up_to_one_process() -> None:
    for step in (together := steps(parts_of([3, 0, 1, 4]), 0.0)):
        assert_is_the_sum_over(batch_of(8, global_row_count=8), step.message)
        assert np.array_equal(step.message, together[0].message)


def test_the_reduced_gradient_is_what_updates() -> None:
    for step in steps(parts_of([3, 5]), 0.25):
        assert_is_the_sum_over(batch_of(8, global_row_count=8), step.message)
        gradient, (loss_sum, correct) = step.message[:-STATISTICS], step.message[-STATISTICS:]
        assert np.array_equal(step.weights, START - np.float32(0.25) * gradient)
        assert (step.result.loss, step.result.accuracy) == (float(loss_sum) / 8, float(correct) / 8)
        assert step.result.gradient_norm == pytest.approx(np.linalg.norm(gradient.astype(np.float64)), rel=SUM)


@pytest.mark.parametrize(("fault", "ratio"), [("sum-without-mean", 4.0), ("mean-twice", 0.25)])
def test_an_injected_fault_is_off_by_the_number_of_ranks_and_leaves_the_loss(fault: str, ratio: float) -> None:
    parts = parts_of([2, 2, 2, 2])
    right, wrong = steps(parts, 0.0)[0].message, steps(parts, 0.0, fault)[0].message
    assert_is_the_sum_over(batch_of(8, global_row_count=8), right)
    # All divisors are powers of 2, by which float32 divides exactly.
    assert np.array_equal(wrong[:-STATISTICS], ratio * right[:-STATISTICS])
    assert np.array_equal(wrong[-STATISTICS:], right[-STATISTICS:])


def timed_step(comm: Any) -> tuple[str, dict[str, tuple[int, int]], float, float]:
    """The phase after a step; of each phase how often and how many bytes; seconds of all phases; the wall's."""
    rank = Rank("F0.0 L0.0 F0.1 L0.1 R0 U0", comm=comm)
    rank.clock.switch("load")
    rank.executor.step(batch_of(3, global_row_count=3 * comm.size), 0.1)
    phase = rank.clock.phase
    rank.clock.resolve_waits(comm)
    rows = rank.clock.rows()
    counts = {phase: (tally.count, tally.bytes) for _, phase, tally in rows}
    return phase, counts, sum(tally.seconds for _, _, tally in rows), rank.clock.wall_seconds()


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_step_is_timed_phase_by_phase(ranks: int) -> None:
    for phase, counts, seconds, wall_seconds in results(on_ranks(ranks, timed_step)):
        assert phase == "other"
        assert counts["forward"] == (2, 0)
        assert counts["update"] == (1, 0)
        assert counts["communicate"] == (1, 4 * (NETWORK.size + STATISTICS))
        assert {"forward", "backward", "communicate", "wait", "update"} <= set(counts)
        assert seconds == pytest.approx(wall_seconds, rel=0.02)


def test_an_operation_on_rows_without_a_micro_batch_is_a_defect() -> None:
    rank = Rank("U0")
    with pytest.raises(ValueError, match="F0 has no micro-batch"):
        rank.executor._forward(Operation(Kind.FORWARD, 0), batch_of(1, 1))
