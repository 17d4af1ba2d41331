"""Every reducer adds: the same bits on all ranks, near what float64 adds, turn after turn, whoever comes late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hpcnn.parallel.reducers.node import BLOCK
from tests.parallel.reducers.sums import Outcome, added, magnitude, reduced
from tests.support.pool import on_ranks, results

# A sum of R float32 numbers is off by at most (R - 1) u times the sum of absolute values (Higham, 2002, Accuracy and
# Stability of Numerical Algorithms, 4.2), u = 2^-24, to first order.
ROUNDOFF = 2.0**-24

EXACT: list[tuple[str, dict[str, Any]]] = [
    ("plain", {}),
    ("mpi", {}),
    ("mpi", {"progress": "none"}),
    ("mpi", {"algorithm": "nodes"}),
    ("mpi", {"algorithm": "flat"}),
    ("mpi", {"algorithm": "flat", "progress": "none"}),
]
SIZES = [2, 3, 17, 1000, 2 * BLOCK + 5]
"""From the statistics alone, with fewer numbers than ranks, to several blocks of a slice."""


def outcomes(ranks: int, *args: Any) -> list[Outcome]:
    return results(on_ranks(ranks, reduced, *args))


@pytest.mark.parametrize("posted", [False, True])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(("name", "options"), EXACT)
def test_all_ranks_get_the_same_bits_and_the_sum(name: str, options: dict[str, Any], ranks: int, posted: bool) -> None:
    turns = 3
    first, *others = outcomes(ranks, name, options, SIZES, turns, posted)
    for other in others:
        assert [one.tobytes() for one in other.sums] == [one.tobytes() for one in first.sums]
    cases = [(turn, size) for turn in range(turns) for size in SIZES]
    for (turn, size), total in zip(cases, first.sums, strict=True):
        bound = (ranks - 1) * ROUNDOFF * magnitude(ranks, size, turn)
        assert (np.abs(total - added(ranks, size, turn)) <= bound * 1.01).all()


@pytest.mark.parametrize(("name", "options"), EXACT)
def test_a_rank_without_rows_adds_nothing(name: str, options: dict[str, Any]) -> None:
    found = outcomes(3, name, options, [100], 1, False, 2)
    bound = 2 * ROUNDOFF * magnitude(2, 100)
    assert all((np.abs(one.sums[0] - added(2, 100)) <= bound * 1.01).all() for one in found)


@pytest.mark.parametrize(("name", "options"), EXACT)
def test_the_same_numbers_again_give_the_same_bits(name: str, options: dict[str, Any]) -> None:
    before, again = (outcomes(4, name, options, [1000, 100_000], 2, True)[0] for _ in range(2))
    assert [one.tobytes() for one in before.sums] == [one.tobytes() for one in again.sums]


def test_what_auto_took_is_said() -> None:
    assert outcomes(2, "mpi", {}, [10], 1, False)[0].described == {"algorithm": "nodes", "nodes": 1}
    assert outcomes(2, "mpi", {"wire": "float16"}, [10], 1, False)[0].described["algorithm"] == "flat"


def test_a_format_of_messages_is_refused_where_nothing_is_sent() -> None:
    with pytest.raises(Exception, match="algorithm=nodes sends nothing on one node, which wire=bfloat16 could round"):
        outcomes(2, "mpi", {"algorithm": "nodes", "wire": "bfloat16"}, [10], 1, False)


@pytest.mark.parametrize("posted", [False, True])
@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_sixteen_bits_are_off_by_their_rounding_and_statistics_are_not(wire: str, ranks: int, posted: bool) -> None:
    from hpcnn.parallel.reducers.wire import FORMATS

    first, *others = outcomes(ranks, "mpi", {"wire": wire}, [5000], 1, posted)
    assert all(other.sums[0].tobytes() == first.sums[0].tobytes() for other in others)
    error = np.abs(first.sums[0] - added(ranks, 5000))
    exact = (ranks - 1) * ROUNDOFF * magnitude(ranks, 5000) * 1.01
    assert (error[-2:] <= exact[-2:]).all()
    u = FORMATS[wire].roundoff
    # the module's bound; of numbers below float16's normal range, 2^-14, each of the two roundings is off by 2^-25
    tiny = 2.0**-25 * (ranks + 1) if wire == "float16" else 0.0
    bound = u * (1 + u) * magnitude(ranks, 5000) + u * np.abs(added(ranks, 5000)) + exact + tiny
    assert (error <= bound * 1.001).all()
    assert error[:-2].max() > exact[:-2].max()  # it was rounded
