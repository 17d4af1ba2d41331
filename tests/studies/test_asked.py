"""Rounded messages and Adasum change results as they were asked to: that is said, and no fault hides behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcnn.studies.compare import compare
from hpcnn.studies.reading import read_run
from hpcnn.studies.verdict import Verdict
from tests.studies.made_runs import STEPS, changed, curve, make_run, scaled, with_noise
from tests.studies.trained import trained, write_files

ROWS = curve()
BASE = make_run("base", ROWS)
WIRE = {"name": "mpi", "options": {"wire": "float16", "algorithm": "flat"}}
FP16 = {"name": "horovod", "options": {"op": "sum", "compression": "fp16"}}
ADASUM = {"name": "horovod", "options": {"op": "adasum", "compression": "none"}}
EXACT = {"name": "mpi", "options": {"wire": "float32", "algorithm": "auto"}}


def judged(rows: Any, reducer: dict[str, Any] | None, ranks: int = 2) -> Verdict:
    return compare(BASE, make_run("run", rows, ranks=ranks, facts={"reducer": reducer}))


def gradients(size: float) -> Any:
    """Gradient norms off by up to `size`, losses of the first step as they were."""
    noisy = with_noise(ROWS, size)
    rows = changed(ROWS, lambda step, name, value: getattr(noisy[step], name) if step or "gradient" in name else value)
    return changed(
        rows, lambda step, name, value: value * (1 + size) if (step, name) == (0, "gradient_norm") else value
    )


@pytest.mark.parametrize(
    ("reducer", "option"), [(WIRE, "wire=float16"), (FP16, "compression=fp16"), (ADASUM, "op=adasum")]
)
def test_what_was_asked_for_is_the_cause_of_what_it_explains(reducer: dict[str, Any], option: str) -> None:
    verdict = judged(gradients(1e-3), reducer)
    (cause,) = verdict.causes
    assert verdict.verdict == "different"
    assert cause.startswith("asked for, not a fault: gradients are ")
    assert cause.endswith(f"(--reducer-option {option}), in run")


@pytest.mark.parametrize("reducer", [EXACT, None, {"name": "native", "options": {"bucket_cap_mb": None}}, {}])
def test_who_did_not_ask_for_it_has_no_such_cause(reducer: dict[str, Any] | None) -> None:
    verdict = judged(gradients(1e-3), reducer)
    assert (verdict.verdict, verdict.causes) == ("different", ())


def test_within_float_noise_there_is_nothing_to_explain() -> None:
    verdict = judged(with_noise(ROWS, 1e-7), WIRE)
    assert (verdict.verdict, verdict.causes) == ("float noise", ())


def test_what_both_were_asked_for_explains_nothing() -> None:
    runs = [make_run(name, rows, facts={"reducer": WIRE}) for name, rows in (("base", ROWS), ("run", gradients(1e-3)))]
    assert compare(*runs).causes == ()


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_mean_that_is_missing_or_taken_twice_is_no_rounding(factor: float) -> None:
    (cause,) = judged(scaled(ROWS, factor), WIRE).causes
    assert cause.startswith("mean is ")


@pytest.mark.parametrize(("size", "explained"), [(0.009, True), (0.02, False)])
def test_rounding_explains_what_eight_bits_can_do(size: float, explained: bool) -> None:
    assert len(judged(scaled(ROWS, 1 + size), WIRE, ranks=4).causes) == explained


def test_other_weights_or_rows_at_the_start_are_explained_by_neither() -> None:
    other = changed(ROWS, lambda step, name, value: value * (1.001 if name == "train_loss" else 1))
    assert judged(other, WIRE).causes == ()
    assert judged(other, ADASUM).causes == ()


@pytest.mark.parametrize("factor", [0.5, 0.7, 2.0])
def test_adasum_may_be_as_long_as_the_sum_or_a_part_of_it(factor: float) -> None:
    (cause,) = judged(scaled(ROWS, factor), ADASUM).causes
    assert "Adasum" in cause


def test_a_run_that_went_on_from_another_may_be_apart_where_the_two_meet() -> None:
    late = changed(ROWS[STEPS:], lambda step, name, value: value * (3 if "loss" in name else 1))
    (cause,) = judged(late, WIRE).causes
    assert cause.startswith("asked for, not a fault")


@pytest.mark.needs("torch")
def test_real_messages_of_sixteen_bits_are_told_and_a_fault_beside_them_too(tmp_path: Path) -> None:
    files = {**write_files(tmp_path), "backend": "torch"}
    (baseline,) = trained(1, [files])
    words = "asked for, not a fault: gradients are rounded between ranks (--reducer-option wire=bfloat16)"
    for fault, start in ((None, words), ("rank-left-out", "rank 2 is left out of the sum")):
        (folder,) = trained(3, [{**files, "reducer_option": {"wire": "bfloat16"}, "inject": fault}])
        verdict = compare(read_run(baseline), read_run(folder))
        (cause,) = verdict.causes
        assert verdict.verdict == "different"
        assert cause.startswith(start)
