from __future__ import annotations

import pytest

from hpcnn.data.agree import Alone, Communicator, agree, attempt, communicator
from hpcnn.errors import ConfigError, DataError, HpcnnError
from tests.support.pool import on_ranks


def succeed(comm: Communicator) -> int:
    return attempt(comm, lambda: 10 * comm.rank)


def agree_on_own(comm: Communicator, errors: list[HpcnnError | None]) -> None:
    agree(comm, errors[comm.rank])


def fail_on_rank_1(comm: Communicator) -> None:
    attempt(comm, lambda: _fail() if comm.rank == 1 else None)
    comm.allgather(comm.rank)


def cause_of_failure_on_rank_1(comm: Communicator) -> str:
    try:
        fail_on_rank_1(comm)
    except DataError as error:
        return repr(error.__cause__)
    return "no error"


def _fail() -> None:
    raise DataError("bad row") from OSError("disk")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_without_errors_every_rank_gets_its_own_result(ranks: int) -> None:
    assert on_ranks(ranks, succeed) == [10 * rank for rank in range(ranks)]


def test_the_error_of_the_lowest_rank_is_raised_on_every_rank_with_its_class() -> None:
    errors: list[HpcnnError | None] = [None, ConfigError("one"), DataError("two")]
    outcomes = on_ranks(3, agree_on_own, errors)
    assert [(type(outcome), str(outcome)) for outcome in outcomes] == [(ConfigError, "one")] * 3


def test_a_rank_that_fails_does_not_leave_the_others_waiting() -> None:
    assert [repr(outcome) for outcome in on_ranks(3, fail_on_rank_1)] == [repr(DataError("bad row"))] * 3


def test_where_it_happened_the_error_keeps_its_cause() -> None:
    with pytest.raises(DataError) as caught:
        attempt(None, _fail)
    assert isinstance(caught.value.__cause__, OSError)
    assert on_ranks(3, cause_of_failure_on_rank_1) == ["None", "OSError('disk')", "None"]


def test_a_defect_is_not_taken_for_an_error_of_the_user() -> None:
    with pytest.raises(ZeroDivisionError):
        attempt(None, lambda: 1 // 0)


def test_no_communicator_is_the_communicator_of_one_process() -> None:
    alone = communicator(None)
    assert (alone.rank, alone.size, alone.allgather("x"), alone.bcast("y")) == (0, 1, ["x"], "y")
    given = Alone()
    assert communicator(given) is given
