"""Settings: every bad one is one line that names it, its value and what it may be; flags override the file."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcnn.config import OPTION_FIELDS, RunConfig
from hpcnn.config_sources import add_flags, config_from
from hpcnn.errors import ConfigError

# Scripts are written with these: one that goes away, or changes its name, breaks them.
FROZEN = """
--network --backend --backend-option --strategy --grid --reducer
--reducer-option --micro-batches --schedule --chunks --balance --stages
--logical-shards --train --test
--label-column --header
--input-shape --classes --normalise --validation-fraction --epochs --max-steps --settle-steps
--global-batch --base-batch --optimizer
--learning-rate --momentum --nesterov --beta1 --beta2 --decay --warmup-epochs --weight-decay --weight-decay-kind --seed
--device --threads --allocator --out --run-id --resume --checkpoint-every --trace --progress --inject
--slow
"""
FLAGS = FROZEN.split()

FIELDS = [item.name for item in dataclasses.fields(RunConfig)]


def parsed(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    return vars(parser.parse_args(arguments))


def toml(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def one_line(error: pytest.ExceptionInfo[ConfigError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    assert error.value.exit_status == 2
    return message


def test_the_flags_are_those_that_scripts_are_written_with() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    known = {text for text in parser._option_string_actions if not text.startswith("--no-")} - {"-h", "--help"}
    assert known == {*FLAGS, "--keras-backend"}


def test_every_setting_is_a_flag_and_every_flag_a_setting() -> None:
    assert ["--" + name.replace("_", "-") for name in FIELDS] == FLAGS


def test_help_can_be_printed_and_tells_the_defaults() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    text = " ".join(parser.format_help().split())
    assert "rows of one update, over all ranks (default: 50)" in text


def test_a_flag_that_is_not_given_stays_out_so_that_the_file_holds() -> None:
    assert parsed() == {}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--epochs", "3"], {"epochs": 3}),
        (["--learning-rate", "1"], {"learning_rate": 1.0}),
        (["--learning-rate=5e-4"], {"learning_rate": 5e-4}),
        (["--seed", str(2**63 - 1)], {"seed": 2**63 - 1}),
        (["--trace", "--no-progress"], {"trace": True, "progress": False}),
        (["--optimizer", "sgd", "--momentum", ".9", "--nesterov"], {"momentum": 0.9, "nesterov": True}),
        (["--run-id", "42"], {"run_id": "42"}),
        (["--validation-fraction", "0"], {"validation_fraction": 0.0}),
    ],
)
def test_flags_become_values_of_the_right_type(arguments: list[str], expected: dict[str, Any]) -> None:
    config = config_from(parsed(*arguments))
    for name, value in expected.items():
        found = getattr(config, name)
        assert found == value
        assert type(found) is type(value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epochs", "ten"], ["--epochs", "whole number", "'ten'"]),
        (["--epochs", "1.5"], ["--epochs", "whole number", "'1.5'"]),
        (["--epochs", "-1"], ["--epochs -1", "at least 0"]),
        (["--global-batch", "0"], ["--global-batch 0", "at least 1"]),
        (["--micro-batches", "0"], ["--micro-batches 0", "at least 1"]),
        (["--logical-shards", "0"], ["--logical-shards 0", "at least 1"]),
        (["--max-steps", "0"], ["--max-steps 0", "at least 1"]),
        (["--base-batch", "0"], ["--base-batch 0", "at least 1"]),
        (["--threads", "0"], ["--threads 0", "at least 1"]),
        (["--classes", "1"], ["--classes 1", "at least 2"]),
        (["--checkpoint-every", "-1"], ["--checkpoint-every -1", "at least 0"]),
        (["--learning-rate", "fast"], ["--learning-rate", "a number", "'fast'"]),
        (["--learning-rate", "0"], ["--learning-rate 0.0", "above 0"]),
        (["--learning-rate", "nan"], ["--learning-rate nan", "above 0"]),
        (["--learning-rate", "inf"], ["--learning-rate inf", "above 0"]),
        (["--learning-rate", "1e999"], ["--learning-rate inf", "above 0"]),
        (["--decay", "inf"], ["--decay inf", "at least 0"]),
        (["--weight-decay=-1e-9"], ["--weight-decay -1e-09", "at least 0"]),
        (["--warmup-epochs", "-1"], ["--warmup-epochs -1.0", "at least 0"]),
        (["--beta1", "1"], ["--beta1 1.0", "0 <= b < 1"]),
        (["--beta2", "-0.1"], ["--beta2 -0.1", "0 <= b < 1"]),
        (["--optimizer", "sgd", "--momentum", "1"], ["--momentum 1.0", "0 <= m < 1"]),
        (["--validation-fraction", "1"], ["--validation-fraction 1.0", "0 <= f < 1"]),
        (["--seed", "-1"], ["--seed -1", "0 to 2^63 - 1"]),
        (["--seed", str(2**63)], [f"--seed {2**63}", "0 to 2^63 - 1"]),
        (["--seed", "9" * 5000], ["--seed", "whole number"]),
        (["--strategy", "pipelin"], ["--strategy 'pipelin'", "single, data"]),
        (["--reducer", "carrier-pigeon"], ["--reducer 'carrier-pigeon'", "mpi"]),
        (["--optimizer", "adagrad"], ["--optimizer 'adagrad'", "sgd, adam"]),
        (["--normalise", "whiten"], ["--normalise 'whiten'", "none, scale, standard"]),
        (["--header", "maybe"], ["--header 'maybe'", "auto, yes, no"]),
        (["--device", "tpu"], ["--device 'tpu'", "cpu"]),
        (["--allocator", "jemalloc"], ["--allocator 'jemalloc'", "tuned, system"]),
        (["--weight-decay-kind", "l2"], ["--weight-decay-kind 'l2'", "coupled, decoupled"]),
        (["--run-id", "../x"], ["--run-id '../x'", "a name without /"]),
        (["--run-id", ".."], ["--run-id '..'", "a name without /"]),
        (["--run-id", ""], ["--run-id ''", "a name without /"]),
        (["--inject", "typo"], ["--inject 'typo'", "sum-without-mean, mean-twice"]),
        *(
            ([f"--slow={text}"], [f"--slow '{text}'", "RANK:FACTOR"])
            for text in ("1", "a:2", "1:0.5", "1:inf", "-1:2", "1:x")
        ),
        (["--momentum", "0.9"], ["--momentum", "--optimizer sgd", "adam"]),
        (["--nesterov"], ["--nesterov", "--optimizer sgd", "adam"]),
        (["--optimizer", "sgd", "--nesterov"], ["--nesterov", "--momentum 0.9"]),
        (["--input-shape", "28,28"], ["--input-shape '28,28'", "1,28,28"]),
        (["--input-shape", "1,28,0"], ["--input-shape '1,28,0'", "1,28,28"]),
        (["--input-shape", "1,28,²"], ["--input-shape '1,28,²'", "1,28,28"]),
    ],
)
def test_a_bad_flag_is_one_line_with_its_value_and_what_it_may_be(arguments: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        config_from(parsed(*arguments))
    message = one_line(error)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[run]\nepochs = "ten"', ["--epochs", "whole number", "'ten'"]),
        ("[run]\nepochs = 1.0", ["--epochs", "whole number", "1.0"]),
        ("[run]\nepochs = true", ["--epochs", "whole number", "True"]),
        ("[run]\nepochs = [1]", ["--epochs", "whole number", "[1]"]),
        ("[run]\ntrace = 1", ["--trace", "true or false", "1"]),
        ("[run]\nrun_id = 7", ["--run-id", "a text", "7"]),
        ('[run]\nlearning_rate = "fast"', ["--learning-rate", "a number", "'fast'"]),
        ("[run]\nlearning_rate = 1" + "0" * 400, ["--learning-rate", "above 0"]),
        ("[run]\nlearning_rate = nan", ["--learning-rate nan", "above 0"]),
        ("[run]\nepoch = 3", ["run.toml", "'epoch'", "did you mean epochs?"]),
        ("[run]\nzzz = 3", ["run.toml", "'zzz'", "known are network, backend"]),
        ("epochs = 3", ["run.toml", "'epochs'", "[run]"]),
        ("[train]\nepochs = 3", ["run.toml", "'train'", "[run]"]),
        ("run = 3", ["run.toml", "'run'", "[run]"]),
        ("[[run]]\nepochs = 3", ["run.toml", "'run'", "[run]"]),
        ("[run\nepochs = 3", ["run.toml", "is not TOML", "line 1"]),
        ("[run]\nepochs = 3\nepochs = 4", ["run.toml", "is not TOML"]),
    ],
)
def test_a_bad_file_is_one_line_with_the_place_and_what_may_stand_there(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        config_from({}, toml(tmp_path, text))
    message = one_line(error)
    for word in words:
        assert word in message


def test_a_file_that_is_missing_a_folder_or_no_text_is_one_line_with_its_name(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, word in ((tmp_path / "none.toml", "no such run file"), (tmp_path, "directory"), (binary, "utf-8")):
        with pytest.raises(ConfigError) as error:
            config_from({}, path)
        message = one_line(error)
        assert str(path) in message
        assert word in message


def test_flags_override_the_file_and_the_file_a_resumed_run(tmp_path: Path) -> None:
    path = toml(tmp_path, "[run]\nepochs = 3\nseed = 5\nlearning_rate = 1\n")
    config = config_from(parsed("--epochs", "7"), path, {"seed": 9, "global_batch": 12})
    assert (config.epochs, config.seed, config.global_batch, config.learning_rate) == (7, 5, 12, 1.0)


def test_an_empty_file_leaves_the_defaults(tmp_path: Path) -> None:
    assert config_from({}, toml(tmp_path, "")) == RunConfig()


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12)
RATES = st.floats(1e-9, 1e3)
SHARES = st.floats(0, 1, exclude_max=True)
COUNTS = st.integers(1, 10**9)
CONFIGS = st.builds(
    RunConfig,
    network=TEXTS,
    backend=st.just("torch"),  # whatever HPCNN_BACKEND says
    backend_option=st.fixed_dictionaries(
        {}, optional={"compile": st.booleans(), "intra_op_threads": st.integers(1, 4096)}
    ),
    reducer_option=st.fixed_dictionaries(
        {}, optional={"wire": st.sampled_from(["float32", "bfloat16"]), "segments": st.integers(1, 9)}
    ),
    grid=st.none() | TEXTS,
    micro_batches=COUNTS,
    logical_shards=st.none() | COUNTS,
    train=st.none() | TEXTS,
    input_shape=st.none() | st.sampled_from(["1,28,28", "3x32x32"]),
    normalise=st.sampled_from(["none", "scale", "standard"]),
    validation_fraction=SHARES,
    global_batch=COUNTS,
    base_batch=st.none() | COUNTS,
    learning_rate=RATES | st.integers(1, 10),
    beta1=SHARES,
    decay=RATES,
    seed=st.integers(0, 2**63 - 1),
    trace=st.booleans(),
)


@given(CONFIGS)
def test_settings_written_as_toml_read_back_equal(config: RunConfig) -> None:
    # A JSON text, number or truth value is a TOML one (but for the surrogates of a long character); None is left out.
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}"
        for key, value in config.to_dict().items()
        if value is not None and key not in OPTION_FIELDS
    ]
    for kind, name, switches in (
        ("backend", config.backend, config.backend_option),
        ("reducer", config.reducer, config.reducer_option),
    ):
        lines += [f"[{kind}.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in switches.items())]
    text = "\n".join(["[run]", *lines])
    with TemporaryDirectory() as folder:
        assert config_from({}, toml(Path(folder), text)) == config


@given(CONFIGS)
def test_settings_survive_json_as_run_json_keeps_them(config: RunConfig) -> None:
    assert RunConfig(**json.loads(json.dumps(config.to_dict(), allow_nan=False))) == config


def test_a_whole_number_for_a_rate_is_the_same_setting_as_the_fraction() -> None:
    whole, fraction = RunConfig(learning_rate=1), RunConfig(learning_rate=1.0)
    assert whole.to_dict() == fraction.to_dict()
    assert type(whole.learning_rate) is float
    assert whole.short_hash() == fraction.short_hash()


@pytest.mark.parametrize(
    "changes", [{"out": "x"}, {"run_id": "x"}, {"resume": "x"}, {"progress": False}, {"trace": True}]
)
def test_where_results_go_does_not_change_the_hash(changes: dict[str, Any]) -> None:
    assert RunConfig(**changes).short_hash() == RunConfig().short_hash()


@pytest.mark.parametrize("changes", [{"seed": 2}, {"threads": 1}, {"learning_rate": 2e-3}, {"network": "x"}])
def test_what_runs_changes_the_hash(changes: dict[str, Any]) -> None:
    assert RunConfig(**changes).short_hash() != RunConfig().short_hash()
    assert len(RunConfig(**changes).short_hash()) == 7


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RunConfig().epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "shape"), [(None, None), ("1,28,28", (1, 28, 28)), ("3x32x16", (3, 32, 16)), (" 1, 8, 8", (1, 8, 8))]
)
def test_the_input_shape_is_three_numbers(text: str | None, shape: tuple[int, int, int] | None) -> None:
    assert RunConfig(input_shape=text).parsed_input_shape() == shape


@pytest.mark.parametrize("text", ['backend = ["torch"]', "backend = {}", "[run.backend.torch]\ncompile = true"])
def test_a_backend_that_is_no_name_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from({}, toml(tmp_path, f"[run]\n{text}\n"))
    assert "give its name under [run], its switches under [backend.NAME]" in one_line(caught)


def test_switches_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="jit_compile compiles functions, and function is false"):
        RunConfig(backend="tensorflow", backend_option={"function": False, "jit_compile": True})
    with pytest.raises(ConfigError, match="--keras-backend jax and --backend-option backend=torch: give one"):
        config_from(parsed("--backend", "keras", "--keras-backend", "jax", "--backend-option", "backend=torch"))
    with pytest.raises(ConfigError, match="--backend-option takes switches by name, not 'compile=true'"):
        RunConfig(backend_option="compile=true")  # type: ignore[arg-type]
