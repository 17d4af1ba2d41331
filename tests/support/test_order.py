"""Groups go by what they took, or by what they hold; what is kept of that is never in a test's way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kept import CACHE
from tests.support.order import longest_first, read_seconds, seconds_file, write_seconds


def test_groups_go_by_seconds_and_unknown_ones_by_their_tests() -> None:
    groups = {"a": (900, 0), "b": (2, 1), "c": (1, 0), "d": (40, 0)}
    assert longest_first(groups, {}) == ["a", "b", "d", "c"]
    assert longest_first(groups, {"a": 3.0, "c": 400.0, "gone": 9.0}) == ["c", "b", "d", "a"]


def test_seconds_are_kept_beside_those_of_other_groups(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    assert read_seconds(path) == {}
    write_seconds(path, {"a": 1.5, "b": 2.0})
    write_seconds(path, {"b": 3.0})
    assert read_seconds(path) == {"a": 1.5, "b": 3.0}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "[1]", '{"a": "x"}', '{"a": null}'])
def test_a_file_that_is_none_of_ours_says_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "seconds.json"
    path.write_text(text, encoding="utf-8")
    assert read_seconds(path) == {}


def test_where_nothing_can_be_kept_nothing_is(tmp_path: Path) -> None:
    write_seconds(tmp_path / "nowhere" / "seconds.json", {"a": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_each_environment_has_a_file_of_its_own() -> None:
    assert seconds_file("/envs/modern-1") == CACHE / "test-seconds-modern-1.json"
