"""The frameworks' switches: known by name and type before a framework is imported, from a file's table or by flag."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from hpcnn.backend_options import (
    OPTIONS,
    KerasOptions,
    SimulatedOptions,
    TensorflowOptions,
    TorchOptions,
    backend_label,
    resolve_options,
)
from hpcnn.config import RunConfig
from hpcnn.config_sources import add_flags, config_from
from hpcnn.errors import ConfigError
from hpcnn.wrappers.registry import BACKENDS


def parsed(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    return vars(parser.parse_args(arguments))


def toml(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(flags: dict[str, Any], path: Path | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        config_from(flags, path)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_every_backend_has_switches_and_nothing_else_does() -> None:
    assert set(BACKENDS) <= set(OPTIONS)


@pytest.mark.parametrize("backend", OPTIONS)
def test_unasked_a_backend_has_its_defaults(backend: str) -> None:
    assert resolve_options(backend, {}) == OPTIONS[backend]()


@pytest.mark.parametrize("backend", OPTIONS)
def test_every_switch_tells_what_it_is_and_takes_its_default(backend: str) -> None:
    for item in dataclasses.fields(OPTIONS[backend]):
        assert item.metadata["help"]
        if item.default is not None:
            assert resolve_options(backend, {item.name: item.default}) == OPTIONS[backend]()


@pytest.mark.parametrize(
    ("backend", "given", "expected"),
    [
        ("torch", {"compile": "true", "channels_last": False}, TorchOptions(compile=True, channels_last=False)),
        ("torch", {"intra_op_threads": "4", "inter_op_threads": 4096}, None),
        (
            "tensorflow",
            {"function": "false", "deterministic": False},
            TensorflowOptions(function=False, deterministic=False),
        ),
        ("keras", {"backend": "jax", "deterministic": "false"}, KerasOptions(backend="jax", deterministic=False)),
        (
            "simulated",
            {"forward_seconds": "5e-3", "backward_ratio": 1},
            SimulatedOptions(forward_seconds=0.005, backward_ratio=1.0),
        ),
    ],
)
def test_a_text_stands_for_a_value_as_a_flag_gives_it(backend: str, given: dict[str, Any], expected: Any) -> None:
    found = resolve_options(backend, given)
    assert found == (expected or TorchOptions(intra_op_threads=4, inter_op_threads=4096))


@pytest.mark.parametrize(
    ("backend", "given", "words"),
    [
        (
            "torch",
            {"channel_last": True},
            ["'channel_last' is unknown: did you mean channels_last? known are", "compi"],
        ),
        ("torch", {"xla": True}, ["'xla' is unknown: known are channels_last, compile"]),
        ("tensorflow", {"compile": True}, ["[backend.tensorflow] 'compile'", "jit_compile", "inter_op_threads"]),
        ("torch", {"compile": "yes"}, ["compile takes true or false, not 'yes'"]),
        ("torch", {"compile": 1}, ["compile takes true or false, not 1"]),
        ("torch", {"compile_mode": "fast"}, ["compile_mode 'fast' is unknown: choose from default, reduce-overhead"]),
        ("torch", {"compile_mode": 3}, ["compile_mode 3 is unknown: choose from default"]),
        ("torch", {"intra_op_threads": 0}, ["intra_op_threads takes a whole number from 1 to 4096, not 0"]),
        ("torch", {"intra_op_threads": True}, ["whole number", "not True"]),
        ("torch", {"intra_op_threads": 1.0}, ["whole number", "not 1.0"]),
        ("torch", {"intra_op_threads": "-1"}, ["whole number", "not '-1'"]),
        ("torch", {"intra_op_threads": "²"}, ["whole number", "not '²'"]),
        ("torch", {"intra_op_threads": "9" * 5000}, ["whole number"]),
        ("tensorflow", {"inter_op_threads": 4097}, ["from 1 to 4096, not 4097"]),
        ("keras", {"backend": "mxnet"}, ["backend 'mxnet' is unknown: choose from tensorflow, torch, jax"]),
        ("keras", {"backend": ["jax"]}, ["backend ['jax'] is unknown"]),
        ("simulated", {"forward_seconds": "soon"}, ["forward_seconds takes a number from 0 to 3600, not 'soon'"]),
        ("simulated", {"forward_seconds": -0.1}, ["from 0 to 3600, not -0.1"]),
        ("simulated", {"forward_seconds": "nan"}, ["from 0 to 3600, not 'nan'"]),
        ("simulated", {"backward_ratio": float("inf")}, ["backward_ratio takes a number", "not inf"]),
        ("simulated", {"backward_ratio": True}, ["not True"]),
        ("simulated", {"backward_ratio": 10**400}, ["backward_ratio takes a number from 0 to 3600"]),
        ("abacus", {"beads": 10}, ["[backend.abacus] is unknown: choose from torch, tensorflow, keras"]),
    ],
)
def test_a_wrong_switch_is_one_line_with_what_it_may_be(backend: str, given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        resolve_options(backend, given)
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 6000
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[backend.torch]\nfast = true", ["run.toml: [backend.torch] 'fast' is unknown: known are channels_last"]),
        ("[backend.tensorflow]\nfast = true", ["run.toml: [backend.tensorflow] 'fast'", "jit_compile"]),
        ("[backend.torch]\ncompile = 1", ["run.toml: [backend.torch] compile takes true or false, not 1"]),
        ("[backend.torch]\ncompile = {}", ["run.toml: [backend.torch] compile takes true or false, not {}"]),
        (
            "[backend.abacus]\nbeads = 10",
            ["run.toml: [backend.abacus] is unknown: choose from torch, tensorflow, kera"],
        ),
        ("[backend]\ntorch = 3", ["run.toml: [backend.torch] is not a table"]),
        ("[[backend.torch]]\ncompile = true", ["run.toml: [backend.torch] is not a table"]),
        ('backend = "torch"', ["run.toml: 'backend' is not a table: write backend = NAME under [run]"]),
        ("[backends.torch]\ncompile = true", ["unknown table or key 'backends'", "[backend.NAME]"]),
        ("[run]\nbackend_option = {compile = true}", ["run.toml: [run] 'backend_option' is unknown"]),
    ],
)
def test_a_wrong_table_is_one_line_with_file_and_place_whatever_backend_runs(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    message = refusal({}, toml(tmp_path, text))
    for word in words:
        assert word in message


BOTH = "[backend.torch]\ncompile = true\nintra_op_threads = 3\n[backend.tensorflow]\njit_compile = true\n"


def test_of_several_tables_that_of_the_backend_holds(tmp_path: Path) -> None:
    path = toml(tmp_path, BOTH)
    assert config_from({}, path).backend_option == {"compile": True, "intra_op_threads": 3}
    assert config_from(parsed("--backend", "tensorflow"), path).backend_option == {"jit_compile": True}
    assert config_from(parsed("--backend", "keras"), path).backend_option == {}
    chosen = toml(tmp_path, f'{BOTH}[run]\nbackend = "tensorflow"\n')
    assert config_from({}, chosen).backend_option == {"jit_compile": True}


def test_a_flag_counts_before_the_file_and_may_be_given_again(tmp_path: Path) -> None:
    path = toml(tmp_path, BOTH)
    flags = parsed("--backend-option", "compile=false", "--backend-option", "compile_mode=max-autotune")
    expected = {"compile": False, "compile_mode": "max-autotune", "intra_op_threads": 3}
    assert config_from(flags, path).backend_option == expected
    again = parsed("--backend-option", "compile=false", "--backend-option", "compile=true")
    assert config_from(again).backend_option == {"compile": True}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--backend-option", "compile"],
            "--backend-option takes KEY=VALUE, not 'compile': `hpcnn backends` lists keys",
        ),
        (["--backend-option", "compile="], "takes KEY=VALUE, not 'compile='"),
        (["--backend-option", "=true"], "takes KEY=VALUE, not '=true'"),
        (["--backend-option", "jit_compile=true"], "--backend-option of torch: 'jit_compile' is unknown: did you mean"),
        (["--backend-option", "compile=maybe"], "--backend-option of torch: compile takes true or false, not 'maybe'"),
        (["--keras-backend", "jax"], "--keras-backend belongs to --backend keras, not to torch: leave it out"),
        (["--backend", "keras", "--keras-backend", "mxnet"], "'mxnet' is unknown: choose from tensorflow, torch, jax"),
        (
            ["--backend", "abacus", "--backend-option", "beads=10"],
            "--backend-option of abacus: is unknown: choose from",
        ),
    ],
)
def test_a_wrong_flag_is_one_line(arguments: list[str], words: str) -> None:
    assert words in refusal(parsed(*arguments))


def test_what_keras_computes_with_is_a_switch_a_flag_and_part_of_the_name(tmp_path: Path) -> None:
    keras = parsed("--backend", "keras", "--keras-backend", "jax")
    file = toml(tmp_path, '[backend.keras]\nbackend = "torch"\n')
    for flags, path, expected in (
        (keras, None, "jax"), (keras, file, "jax"), (parsed("--backend", "keras"), file, "torch")
    ):  # fmt: skip
        config = config_from(flags, path)
        assert config.backend_option == {"backend": expected}
        assert config.backend_label == f"keras_{expected}"
    assert config_from(parsed("--backend", "keras")).backend_label == "keras_tensorflow"
    assert backend_label("torch", {}) == "torch"


def test_a_resumed_run_keeps_its_switches_and_another_backend_drops_them(tmp_path: Path) -> None:
    base = RunConfig(backend_option={"compile": True, "intra_op_threads": 2}).to_dict()
    assert config_from({}, None, base).backend_option == {"compile": True, "intra_op_threads": 2}
    assert config_from(parsed("--backend-option", "compile=false"), None, base).backend_option["compile"] is False
    other = config_from(parsed("--backend", "tensorflow"), toml(tmp_path, BOTH), base)
    assert other.backend_option == {"jit_compile": True}


def test_switches_tell_runs_apart() -> None:
    hashes = {RunConfig(backend_option=given).short_hash() for given in ({}, {"compile": True}, {"compile": False})}
    assert len(hashes) == 3
