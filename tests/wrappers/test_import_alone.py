"""What frameworks are imported under is gone when they are."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from hpcnn.wrappers.import_alone import during, uncollected, without


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


@pytest.mark.parametrize("before", [True, False])
def test_the_collector_is_as_it_was_also_behind_an_import_that_failed(before: bool) -> None:
    for error in (None, ImportError("no such framework")):
        (gc.enable if before else gc.disable)()
        try:
            with uncollected():
                assert not gc.isenabled()
                if error is not None:
                    raise error
        except ImportError:
            assert error is not None
        assert gc.isenabled() == before


def test_a_guest_that_is_not_there_yet_cannot_be_imported_within() -> None:
    name = "this"  # of the standard library, and imported by nobody
    sys.modules.pop(name, None)
    with without([name, "gc"]), pytest.raises(ImportError):
        __import__(name)
    assert name not in sys.modules
    assert sys.modules["gc"] is gc


def test_values_of_a_mapping_come_back_and_others_stay() -> None:
    mapping = {"kept": 1, "changed": 2}
    with during(mapping, {"changed": 3, "new": 4}):
        mapping["kept"] = 5
        assert mapping == {"kept": 5, "changed": 3, "new": 4}
    assert mapping == {"kept": 5, "changed": 2}
