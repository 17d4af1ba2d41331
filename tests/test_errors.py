"""The errors that a person is to mend: one hierarchy, so that the command can tell them from defects."""

from __future__ import annotations

import inspect
import pickle

import pytest

from hpcnn import errors
from hpcnn.errors import HpcnnError, NotInstalledError

CLASSES = [value for _, value in inspect.getmembers(errors, inspect.isclass) if value.__module__ == errors.__name__]


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_is_of_the_suite_and_says_what_it_is_for(error: type[HpcnnError]) -> None:
    assert issubclass(error, HpcnnError)
    assert error.__doc__
    assert str(error("file.csv: line 3: 'x' is not a number")) == "file.csv: line 3: 'x' is not a number"


def test_a_wrong_setting_or_network_ends_with_2_and_all_else_with_1() -> None:
    status = {error.__name__: error.exit_status for error in CLASSES}
    assert {name for name, number in status.items() if number == 2} == {"ConfigError", "NetworkError"}
    assert set(status.values()) == {1, 2}


def test_an_error_is_of_one_rank_unless_all_agreed_on_it() -> None:
    error = HpcnnError("x")
    assert not error.agreed
    error.agreed = True
    assert not HpcnnError("y").agreed


@pytest.mark.parametrize("error", CLASSES)
def test_an_error_reaches_other_ranks_as_it_is(error: type[HpcnnError]) -> None:
    sent = error("what, where, which and what to do")
    sent.agreed = True
    found = pickle.loads(pickle.dumps(sent))  # what mpi4py does with what is no array
    assert (type(found), str(found), vars(found)) == (error, str(sent), vars(sent))
    found = pickle.loads(pickle.dumps(NotInstalledError("x", "caffe")))
    assert found.word == "caffe"
