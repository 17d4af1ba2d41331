from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ConfigError
from hpcnn.parallel.program import Kind, Operation, parse_operation, parse_program, program_text

NUMBERS = st.integers(0, 10**9 - 1)
ON_MICRO_BATCH = (Kind.FORWARD, Kind.LOSS, Kind.BACKWARD)
OPERATIONS = st.one_of(
    st.builds(Operation, st.sampled_from(ON_MICRO_BATCH), NUMBERS, NUMBERS),
    st.builds(Operation, st.sampled_from([kind for kind in Kind if kind not in ON_MICRO_BATCH]), NUMBERS),
)


@given(st.lists(OPERATIONS).map(tuple))
def test_a_programs_text_reads_back(program: tuple[Operation, ...]) -> None:
    assert parse_program(program_text(program)) == program


@given(st.one_of(st.from_regex(r"\A[FLBRUX]\d{1,3}(\.\d{1,3})?\Z"), st.text(max_size=6)))
def test_any_text_is_an_operations_own_text_or_refused(text: str) -> None:
    try:
        operation = parse_operation(text)
    except ConfigError:
        return
    assert str(operation) == text
    assert (operation.micro_batch is not None) == (operation.kind in ON_MICRO_BATCH)


def test_texts_are_those_of_the_docstring() -> None:
    assert parse_program("F0.2 B0.2 L0.2 R0 U0") == (
        Operation(Kind.FORWARD, 0, 2),
        Operation(Kind.BACKWARD, 0, 2),
        Operation(Kind.LOSS, 0, 2),
        Operation(Kind.REDUCE, 0),
        Operation(Kind.UPDATE, 0),
    )


def test_blanks_of_any_kind_separate() -> None:
    assert parse_program("  F0.0\n L0.0\tU0 ") == parse_program("F0.0 L0.0 U0")
    assert parse_program("") == ()


@pytest.mark.parametrize(
    "text",
    ["", "F", "F0.", "F.0", "0.0", "f0.0", "F0.0.0", "F-1.0", "F0.-1", "F0,0", "F 0.0", "F00.0", "F0.01", "F0.0 ",
     "X0.0", "Z1", "FF0.0", "F0.0\n", "F\N{ARABIC-INDIC DIGIT ONE}.0", "F0.1e3", "R", "U0x"],
)  # fmt: skip
def test_a_text_that_is_no_operation_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_operation(text)
    assert str(refusal.value) == (f"{text!r} is not an operation: letters are F, L, B, R, U, as in F0.2 or U0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("F0", "'F0': forward needs micro-batch"),
        ("L1", "'L1': loss needs micro-batch"),
        ("B0", "'B0': backward needs micro-batch"),
        ("R0.1", "'R0.1': reduce has no micro-batch"),
        ("U0.0", "'U0.0': update has no micro-batch"),
    ],
)
def test_a_micro_batch_too_few_or_too_many_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_program(f"F0.0 {text}")
    assert str(refusal.value) == message
