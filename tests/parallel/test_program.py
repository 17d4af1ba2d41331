from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.errors import ConfigError
from hpcnn.parallel.program import Kind, Operation, parse_operation, parse_program, program_text, stage_of

NUMBERS = st.integers(0, 10**9 - 1)
ON_MICRO_BATCH = [kind for kind in Kind if kind in "FLBIJWASGT"]
OPERATIONS = st.one_of(
    st.builds(Operation, st.sampled_from(ON_MICRO_BATCH), NUMBERS, NUMBERS),
    st.builds(Operation, st.sampled_from([kind for kind in Kind if kind not in ON_MICRO_BATCH]), NUMBERS),
)


@given(st.lists(OPERATIONS).map(tuple))
def test_a_programs_text_reads_back(program: tuple[Operation, ...]) -> None:
    assert parse_program(program_text(program)) == program


@given(st.one_of(st.from_regex(r"\A[A-Z]\d{1,3}(\.\d{1,3})?\Z"), st.text(max_size=6)))
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
    assert parse_program("I0.2 J1.2 W0.2 A1.2 S0.2 G0.2 T1.2 P0 C0 H0") == (
        Operation(Kind.BACKWARD_INPUT, 0, 2),
        Operation(Kind.LOSS_INPUT, 1, 2),
        Operation(Kind.BACKWARD_WEIGHTS, 0, 2),
        Operation(Kind.ACCEPT, 1, 2),
        Operation(Kind.SEND, 0, 2),
        Operation(Kind.GET, 0, 2),
        Operation(Kind.TRANSMIT, 1, 2),
        Operation(Kind.POST, 0),
        Operation(Kind.COMPLETE, 0),
        Operation(Kind.SHARE, 0),
    )


@pytest.mark.parametrize(("send", "receive"), [("S0.2", "A1.2"), ("T1.2", "G0.2"), ("S3.0", "A4.0")])
def test_a_message_has_two_ends(send: str, receive: str) -> None:
    assert str(parse_operation(send).other_end) == receive
    assert str(parse_operation(receive).other_end) == send


@pytest.mark.parametrize("text", ["F0.2", "L1.0", "W0.0", "R0", "H0", "U0"])
def test_what_is_no_message_has_no_other_end(text: str) -> None:
    with pytest.raises(ValueError, match=f"{text} is no message"):
        _ = parse_operation(text).other_end


@pytest.mark.parametrize(("stages", "expected"), [(1, [0, 0, 0, 0]), (2, [0, 1, 0, 1]), (3, [0, 1, 2, 0])])
def test_segments_go_round_the_stages(stages: int, expected: list[int]) -> None:
    assert [stage_of(segment, stages) for segment in range(4)] == expected


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
    letters = "F, L, B, I, J, W, A, S, G, T, R, P, C, H, U, N"
    assert str(refusal.value) == f"{text!r} is not an operation: letters are {letters}, as in F0.2 or U0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("F0", "'F0': forward needs micro-batch"),
        ("L1", "'L1': loss needs micro-batch"),
        ("B0", "'B0': backward needs micro-batch"),
        ("W0", "'W0': backward weights needs micro-batch"),
        ("T1", "'T1': transmit needs micro-batch"),
        ("P0.1", "'P0.1': post has no micro-batch"),
        ("R0.1", "'R0.1': reduce has no micro-batch"),
        ("U0.0", "'U0.0': update has no micro-batch"),
    ],
)
def test_a_micro_batch_too_few_or_too_many_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_program(f"F0.0 {text}")
    assert str(refusal.value) == message
