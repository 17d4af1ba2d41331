"""The comparison as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcnn.studies.compare import compare, run_compare
from hpcnn.studies.report import MOST_EPOCHS, WIDTH, render
from tests.studies.made_runs import curve, drifting, make_run, scaled, with_noise, write_run

ROWS = curve(2)
BASE = make_run("base", ROWS)


def test_the_first_line_is_the_verdict_and_both_names() -> None:
    for rows, verdict in ((ROWS, "same"), (with_noise(ROWS, 1e-7), "float noise"), (scaled(ROWS, 3), "different")):
        text = render([compare(BASE, make_run("run", rows, ranks=3))])
        assert text.splitlines()[0] == f"VERDICT {verdict}: run against base"


def test_the_whole_block_of_a_run_of_two_ranks() -> None:
    text = render([compare(BASE, make_run("run", ROWS, ranks=2))])
    assert text == "\n".join(
        [
            "VERDICT same: run against base",
            "  - every figure of 24 steps is equal to the bit",
            "  - predictions are not compared: not both runs have a predictions.csv",
            "",
            "epoch                  loss                  acc.       validation loss       validation acc.",
            "         baseline       run    baseline       run    baseline       run    baseline       run",
            "    1      1.7769    1.7769      31.34%    31.34%      1.2797    1.2797      56.00%    56.00%",
            "    2      0.9501    0.9501      63.48%    63.48%      0.7539    0.7539      74.00%    74.00%",
            "",
            "seconds, base",
            "rank   start    load forward backward communicate    wait  update evaluate checkpoint   other",
            "   0    0.00    0.00    0.50     0.00        0.00    0.50    0.00     0.00       0.00    0.00",
            "on node0 (0)",
            "",
            "seconds, run",
            "rank   start    load forward backward communicate    wait  update evaluate checkpoint   other",
            "   0    0.00    0.00    0.50     0.00        0.00    0.50    0.00     0.00       0.00    0.00",
            "   1    0.00    0.00    1.00     0.00        0.00    1.00    0.00     0.00       0.00    0.00",
            "on node0 (0, 1)",
            "",
            "baseline: results/base",
            "run:      results/run",
        ]
    )


def test_the_cause_stands_before_the_reasons() -> None:
    lines = render([compare(BASE, make_run("run", scaled(ROWS, 4), ranks=4))]).splitlines()
    assert lines[1] == "  cause: mean is missing: gradients are added across 4 ranks and not divided, in run"
    assert lines[2].startswith("  - step 0 (epoch 1): the loss is equal, the gradient is not")


@pytest.mark.parametrize("name", ["run", "cnn2d_3layer_fullconnected_3layer_torch_data_np16_0123abc_job12345678_001"])
@pytest.mark.parametrize("factor", [1.0, 16.0])
def test_no_line_is_wider_than_a_hundred_columns(name: str, factor: float) -> None:
    base = make_run("the_baseline_" + name, ROWS, predictions=[1] * 1000)
    run = make_run(name, scaled(drifting(ROWS, 0.3), factor), ranks=16, predictions=[1] * 990 + [2] * 10)
    run.seconds[0, "forward"] = 123456.7  # type: ignore[index]
    lines = render([compare(base, run)]).splitlines()
    # Names and paths stand on a line of their own and are not cut.
    assert max(len(line) for line in lines if not line.endswith(name)) <= WIDTH
    assert lines[0].startswith("VERDICT ")
    assert " 123457 " in "\n".join(lines)


def test_of_many_epochs_the_first_and_the_last_are_shown() -> None:
    many = make_run("many", curve(60))
    lines = render([compare(many, many)]).splitlines()
    table = lines[lines.index("") + 3 :]
    shown = [line.split()[0] for line in table[: table.index("")]]
    half = MOST_EPOCHS // 2
    assert shown == [*map(str, range(1, half + 1)), "...", *map(str, range(61 - half, 61))]


def test_without_validation_rows_there_are_no_columns_for_them() -> None:
    plain = make_run("plain", curve(2, validation=False))
    assert "validation" not in render([compare(plain, plain)])


def test_a_run_of_no_epoch_has_no_table() -> None:
    none = make_run("none", [], predictions=[1, 2])
    assert "no epoch was trained" in render([compare(none, none)])


def test_epochs_that_only_one_run_has_leave_the_other_side_empty() -> None:
    text = render([compare(BASE, make_run("run", curve(1), settings={"epochs": 1}))])
    (line,) = [line for line in text.splitlines() if line.startswith("    2 ")]
    assert line.split()[2::2] == ["-", "-", "-", "-"]


def test_several_runs_have_a_block_each() -> None:
    text = render([compare(BASE, make_run(name, ROWS)) for name in ("one", "two")])
    assert [line for line in text.splitlines() if line.startswith("VERDICT")] == [
        "VERDICT same: one against base",
        "VERDICT same: two against base",
    ]


def test_json_is_printed_instead_or_written_besides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, run = write_run(tmp_path, "base", ROWS), write_run(tmp_path, "run", scaled(ROWS, 2), ranks=2)
    run_compare(base, [run], as_json=True)
    printed = json.loads(capsys.readouterr().out)
    run_compare(base, [run], tmp_path / "verdicts.json")
    assert capsys.readouterr().out.startswith("VERDICT different")
    assert json.loads((tmp_path / "verdicts.json").read_text()) == printed
    (found,) = printed["comparisons"]
    assert (found["verdict"], found["baseline"], found["run"]) == ("different", str(base), str(run))
    assert set(found) == {"verdict", "baseline", "run", "reasons", "causes", "figures"}
